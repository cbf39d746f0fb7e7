"""A tiny Llama that learns to read evidence: its rows, its adapter in peft and in llama.cpp, resuming, refusals."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file

from biorag.answering.followups import rewriting_prompt
from biorag.answering.readers.generators import WORDS as SAID
from biorag.answering.readers.generators import reading_prompt, reading_template
from biorag.answering.readers.records import SecondReader
from biorag.answering.sentence_matching import EvidenceSentence
from biorag.engine import load_reader
from biorag.errors import BadInputError, MismatchError, MissingError
from biorag.generators.source import require_generator
from biorag.models.finding import find_base, find_llama, hash_of_file
from biorag.prompts.parse import parse_reply
from biorag.settings.settings import Settings
from biorag.training.contamination import ContaminationPolicy
from biorag.training.exchanges import UNKNOWN, Exchanges
from biorag.types import LABELS
from tests.cli import done, failed, invoke
from tests.conftest import WORDS
from tests.hostile.tiny_gguf import STRING, Typed, tiny_llama

pytestmark = pytest.mark.models

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# A sign in the evidence decides: the model has one layer.
DECIDES = {"++++": "supports", "####": "contradicts", "====": "neither"}
PAIRS = [(f"{sign} {one} {sign}", f"{one}", label) for sign, label in DECIDES.items() for one in WORDS]
FAST = ["--precision", "fp32", "--max-tokens", "160", "--evaluations", "2", "--validation", "0.1"]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    chat = {"tokenizer__chat_template": Typed(STRING, TEMPLATE), "tokenizer__ggml__merges": Typed(STRING, [])}
    return replace(tiny_llama().keyed(**chat), sharpness=8.0).write(tmp_path_factory.mktemp("base") / "tiny.gguf")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "pairs.jsonl"
    records = [{"premise": premise, "hypothesis": claim, "label": label} for premise, claim, label in PAIRS]
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def trained(rows, base, out, *more):
    words = ("train", "generator", rows, "--base", base, *FAST, "--learning-rate", "0.02", "--batch-size", "8")
    return done(invoke(*words, *more, "--out", out, "--json"))


@pytest.fixture(scope="module")
def model(rows, base, tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "reading"
    manifest = trained(rows, base, out, "--max-steps", "100", "--lora-alpha", "64")
    assert manifest["final_loss"] < 0.05 and manifest["best"]["metric"] == "log_likelihood"
    assert sum(manifest["data"]["sources"]["pairs"].values()) == manifest["rows"]
    return out


def test_it_reads_what_it_was_taught_through_llama_cpp(model, tmp_path):
    reader = load_reader(Settings.of(reader=str(model), home=tmp_path))
    assert reader is not None and reader.name == "reading"
    right = 0
    for premise, claim, label in PAIRS:
        (stances,) = reader.read(claim, [premise]).stances
        assert stances.sum() == pytest.approx(1, abs=1e-5)
        right += LABELS[int(stances.argmax())] == label
    assert right == len(PAIRS)


def test_llama_cpp_and_peft_see_the_same_adapter(model, base, tmp_path):
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from biorag.training.bi_encoder import write_base

    files = write_base(find_base(str(base)), tmp_path / "bases", AutoModelForCausalLM)
    tokenizer = AutoTokenizer.from_pretrained(files.path)
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(files.path), model).eval()
    generator = require_generator(Settings.of(llm=str(model), home=tmp_path, cache=False))
    for premise, claim, _ in PAIRS[::9]:
        prompt = reading_prompt(reading_template(), premise, claim)
        turns = [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]
        ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt", return_dict=False)
        with torch.inference_mode():
            expected = torch.log_softmax(adapted(ids).logits[0, -1], dim=-1)
        first = [tokenizer(word, add_special_tokens=False).input_ids[0] for word in SAID]
        said = generator.score(prompt, SAID).logprobs
        np.testing.assert_allclose([said[word] for word in SAID], expected[first].numpy(), atol=0.05)


def test_the_second_reader_tells_of_each_line_what_its_state_in_peft_tells(model, base, tmp_path):
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from biorag.training.bi_encoder import write_base

    files = write_base(find_base(str(base)), tmp_path / "bases", AutoModelForCausalLM)
    tokenizer = AutoTokenizer.from_pretrained(files.path)
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(files.path), model).eval()
    weights = np.random.default_rng(1).normal(size=adapted.config.hidden_size)
    shutil.copy(model / "adapter.gguf", tmp_path)
    head = {"adapter": hash_of_file(tmp_path / "adapter.gguf"), "weights": weights.tolist(), "bias": 0.5}
    (tmp_path / "head.json").write_text(json.dumps(head))
    rows = [
        EvidenceSentence(1, 40, 60, "++++ fever ++++", title="heart"),
        EvidenceSentence(2, 0, 20, "==== liver"),
        EvidenceSentence(1, 0, 20, "#### aspirin", title="heart"),
    ]
    reader = SecondReader(base, tmp_path, threads=1)
    said = reader.log_odds("gene?", rows)

    def expected(title, *texts):
        pieces = ["Question: gene?", "\n", *([f"Title: {title}", "\n"] if title else []), "Evidence:\n"]
        ids = [id for piece in pieces for id in tokenizer(piece, add_special_tokens=False).input_ids]
        for text in texts:
            ids += (
                tokenizer(text, add_special_tokens=False).input_ids
                + tokenizer("\n", add_special_tokens=False).input_ids
            )
            with torch.inference_mode():
                states = adapted.base_model.model.model(torch.tensor([ids])).last_hidden_state[0, -1].numpy()
            yield states @ weights + 0.5

    first, last = expected("heart", "#### aspirin", "++++ fever ++++")
    np.testing.assert_allclose(said, [last, *expected("", "==== liver"), first], atol=0.05)
    np.testing.assert_allclose(reader.log_odds("gene?", rows[1:2]), said[1:2], atol=1e-5)
    (tmp_path / "adapter.gguf").write_bytes(b"GGUF")
    with pytest.raises(MismatchError, match="second reader"):
        SecondReader(base, tmp_path)


def test_a_run_that_was_cut_off_goes_on_as_if_it_had_not(rows, base, tmp_path, monkeypatch):
    whole = trained(rows, base, tmp_path / "whole", "--max-steps", "4")
    from biorag.training.generator import GeneratorTraining

    def cut(self, folder, facts):
        job = original(self, folder, facts)
        steps = iter(range(2))

        class Stopped(job.trainer):
            def training_step(self, *arguments, **options):
                if next(steps, None) is None:
                    raise KeyboardInterrupt
                return super().training_step(*arguments, **options)

        return replace(job, trainer=Stopped)

    original = GeneratorTraining.job
    monkeypatch.setattr(GeneratorTraining, "job", cut)
    invoke("train", "generator", rows, "--base", base, *FAST, "--learning-rate", "0.02", "--batch-size", "8",
           "--max-steps", "4", "--out", tmp_path / "cut")  # fmt: skip
    monkeypatch.setattr(GeneratorTraining, "job", original)
    resumed = trained(rows, base, tmp_path / "cut", "--max-steps", "4")
    assert resumed["resumed_from_step"] == 2
    assert (tmp_path / "cut/adapter.gguf").read_bytes() == (tmp_path / "whole/adapter.gguf").read_bytes()
    assert resumed["best"] == whole["best"]


def test_answers_are_by_documents_that_answer_beside_near_misses(tmp_path):
    questions = [("Which drug blocks fever?", "aspirin"), ("Which drug blocks clots?", "warfarin")] * 10
    records = [
        {
            "question": question,
            "passages": [{"text": f"In trial {n} the drug {drug} blocks it. Others do not."}],
            "ideal_answer": [f"The drug {drug} blocks it."],
        }
        for n, (question, drug) in enumerate(questions)
    ]
    file = tmp_path / "asked.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    settings = Settings.of(train_validation=0)
    split, facts = Exchanges(ContaminationPolicy(), settings, limit=1, answers=20).read([file])
    asked = [row for row in split.training if row.source == "asked" and "{" in row.reply]
    assert facts["data"]["sources"]["asked"]["answer"] == len(asked) > 5
    unknown = 0
    for row in asked:
        reply = parse_reply(row.reply)
        drug = dict(questions)[row.query]
        if reply.text("answer") == UNKNOWN:
            unknown += 1
            continue
        assert reply.text("answer") == f"The drug {drug} blocks it."
        documents = row.user.split('<document n="')[1:]
        cited = json.loads(row.reply)["citations"]
        assert cited and all(f"the drug {drug} blocks" in documents[n - 1] for n in cited)
    assert 0 < unknown < len(asked)


def test_questions_that_benchmarks_ask_with_options_are_learnt_with_them(tmp_path):
    polar = [{"type": "yesno", "exact_answer": "no" if n % 2 else "yes"} for n in range(20)]
    named = [{"type": "factoid", "exact_answer": [[f"gene {n}", "other name"]]} for n in range(20)]
    records = [
        {
            **one,
            "question": f"Is it number {n}?",
            "passages": [{"text": f"Its number is {n}."}],
            "ideal_answer": [f"{n}!"],
        }
        for n, one in enumerate(polar + named)
    ]
    file = tmp_path / "asked.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    split, _ = Exchanges(ContaminationPolicy(), Settings.of(train_validation=0), answers=40).read([file])
    factoids, unread = 0, 0
    for row in (row for row in split.training if "answer_choice" in row.reply):
        reply, record = json.loads(row.reply), records[int(row.query.split()[-1][:-1])]
        options = dict(line.split(". ") for line in row.user.split("## Options\n")[1].split("\n\n")[0].split("\n"))
        answer = record["exact_answer"]
        assert options[reply["answer_choice"]] == (answer if isinstance(answer, str) else answer[0][0])
        if isinstance(answer, str):
            assert options == {"A": "yes", "B": "no"}
        else:
            assert len({*options.values()}) == 4
            factoids += 1
        unread += reply["relevant_context"] == "NOT"
        told = UNKNOWN if reply["relevant_context"] == "NOT" else record["ideal_answer"][0]
        assert reply["step_by_step_thinking"] == told and list(reply)[-1] == "answer_choice"
    assert 0 < factoids < len(named) and 0 < unread < len(polar)


def test_a_run_goes_on_from_the_matrices_of_another(model, base, rows, tmp_path):
    more = ("--max-steps", "1", "--lora-alpha", "64", "--learning-rate", "1e-9")
    trained(rows, model, tmp_path / "further", *more)
    before, after = (load_file(folder / "adapter_model.safetensors") for folder in (model, tmp_path / "further"))
    assert list(before) == list(after)
    for name, matrix in before.items():
        np.testing.assert_allclose(after[name], matrix, atol=1e-7)
    assert find_llama(str(tmp_path / "further"))[0] == find_llama(str(model))[0]
    assert find_base(str(model)).sha256 != find_base(str(base)).sha256
    words = ("train", "generator", rows, "--base", model, *FAST, "--out", tmp_path / "x")
    failed(invoke(*words), 3, "add --lora-rank 16 --lora-alpha 64.0")


def test_follow_ups_are_learnt_as_they_are_rewritten(tmp_path):
    row = {"previous": "What is gout?", "answer": "Gout is a crystal arthritis.", "question": "and its cause?"}
    file = tmp_path / "turns.jsonl"
    file.write_text(json.dumps({**row, "standalone": "What causes gout?"}) + "\n", encoding="utf-8")
    split, facts = Exchanges(ContaminationPolicy(), Settings.of(train_validation=0)).read([file])
    (learnt,) = split.training
    assert (learnt.system, learnt.reply) == ("", "What causes gout?")
    assert learnt.user == rewriting_prompt(row["question"], row["previous"], row["answer"]).user
    assert facts["data"]["sources"] == {"turns": {"answer": 1}}
    file.write_text(json.dumps({**row, "standalone": None}) + "\n", encoding="utf-8")
    with pytest.raises(BadInputError, match="line 1: it has no text 'standalone'"):
        Exchanges(ContaminationPolicy(), Settings.of()).read([file])


def test_what_cannot_be_trained_or_loaded_is_told(rows, base, model, tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.write_text('{"premise": "a", "hypothesis": "b", "label": "not_supports"}\n', encoding="utf-8")
    with pytest.raises(BadInputError, match="no row is left"):
        Exchanges(ContaminationPolicy(), Settings()).read([empty])
    failed(invoke("train", "generator", tmp_path / "no.jsonl", "--base", base, "--out", tmp_path / "x"), 4, "no.jsonl")
    plain = tiny_llama().keyed(tokenizer__ggml__merges=Typed(STRING, [])).write(tmp_path / "plain.gguf")
    failed(invoke("train", "generator", rows, "--base", plain, *FAST, "--out", tmp_path / "x"), 3, "no chat template")
    moved = tmp_path / "moved"
    moved.mkdir()
    (moved / "adapter.gguf").write_bytes(b"")
    (moved / "training.json").write_text('{"base": "other", "base_file": "/gone/base"}', encoding="utf-8")
    with pytest.raises(MissingError, match="damaged, or not beside"):
        find_llama(str(moved))
    (moved / "adapter.gguf").write_bytes(b"GGUF")
    with pytest.raises(MissingError, match="llama-server --lora"):
        find_llama(str(moved))
    for text in ("not json", "[1]", "{}"):
        (moved / "training.json").write_text(text, encoding="utf-8")
        with pytest.raises(MissingError, match=r"is damaged.*: .* is no finished folder"):
            find_llama(str(moved))
    failed(
        invoke("train", "generator", rows, "--base", "minilm", *FAST, "--out", tmp_path / "x"),
        3,
        "is no language model",
    )
