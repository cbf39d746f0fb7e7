"""Writing one setting into a file that its user wrote."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biorag.errors import UsageError
from biorag.settings.file import write_setting

MINE = """# my settings
name = "pubmed"   # the big one
lambda = 0.01 # by hand

# reranking
k_init = 50
"""


def test_the_value_changes_and_the_rest_stays(tmp_path):
    path = tmp_path / "biorag.toml"
    path.write_text(MINE)
    write_setting(path, "lambda", 0.03, "today: nDCG@10 0.9")
    written = MINE.replace("lambda = 0.01 # by hand", "lambda = 0.03 # biorag tune today: nDCG@10 0.9 # by hand")
    assert path.read_text() == written
    write_setting(path, "lambda", 0.05, "tomorrow: nDCG@10 0.91")
    assert path.read_text() == written.replace(
        "0.03 # biorag tune today: nDCG@10 0.9 ", "0.05 # biorag tune tomorrow: nDCG@10 0.91 "
    )


def test_a_new_setting_comes_last_and_a_new_file_is_made(tmp_path):
    path = tmp_path / "biorag.toml"
    path.write_text(MINE)
    write_setting(path, "interpolation", 1.5, "today")
    assert path.read_text() == MINE + "interpolation = 1.5 # biorag tune today\n"
    write_setting(tmp_path / "new" / "biorag.toml", "k_init", 20, "today")
    assert (tmp_path / "new" / "biorag.toml").read_text() == "k_init = 20 # biorag tune today\n"


def test_a_last_line_without_its_end_and_a_comment_of_several_lines(tmp_path):
    path = tmp_path / "biorag.toml"
    path.write_text("k = 5")
    write_setting(path, "k_init", 20, "on a\nb\x07 c")
    assert path.read_text() == "k = 5\nk_init = 20 # biorag tune on a b\N{REPLACEMENT CHARACTER} c\n"


def test_a_link_stays_a_link_and_line_ends_stay(tmp_path):
    real, link = tmp_path / "real.toml", tmp_path / "biorag.toml"
    real.write_bytes(b"k = 5\r\nk_init = 10\r\n")
    link.symlink_to(real)
    write_setting(link, "k_init", 20, "today")
    assert link.is_symlink()
    assert real.read_bytes() == b"k = 5\r\nk_init = 20 # biorag tune today\r\n"


@pytest.mark.parametrize("content", [b"k_init = = 3", b"\xff\xfe"])
def test_what_is_no_toml_is_left_alone(tmp_path, content):
    path = tmp_path / "biorag.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not valid TOML"):
        write_setting(path, "k_init", 20, "today")
    assert path.read_bytes() == content


def test_a_read_only_file_is_left_alone(tmp_path):
    path = tmp_path / "biorag.toml"
    path.write_text(MINE)
    path.chmod(0o444)
    with pytest.raises(UsageError, match=r"read-only: .*--no-write"):
        write_setting(path, "k_init", 20, "today")
    assert path.read_text() == MINE


@given(
    st.dictionaries(st.sampled_from(["name", "k", "k_init", "mode"]), st.integers(0, 99), max_size=4),
    st.floats(0, 100, allow_nan=False),
)
def test_only_the_setting_is_another(tmp_path_factory, values, value):
    path = tmp_path_factory.mktemp("toml") / "biorag.toml"
    path.write_text("".join(f"{key} = {number}\n" for key, number in values.items()))
    write_setting(path, "k_init", value, "today")
    assert tomllib.loads(path.read_text()) == {**values, "k_init": value}
