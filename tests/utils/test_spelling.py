"""One form for British and American spelling."""

import pytest

from biorag.utils.spelling import one_spelling

PAIRS = (
    "tumour tumor, tumours tumors, oestrogen estrogen, haemoglobin hemoglobin, anaemia anemia, paediatric pediatric, "
    "orthopaedic orthopedic, leukaemia leukemia, ischaemic ischemic, oedema edema, angioedema angioedema, "
    "diarrhoea diarrhea, dyspnoea dyspnea, foetal fetal, oesophageal esophageal, gynaecology gynecology, "
    "anaesthesia anesthesia, faecal fecal, coeliac celiac, aetiology etiology, behavioural behavioral, colour color, "
    "randomised randomized, hospitalisation hospitalization, organisation organization, analysed analyzed, "
    "paralyse paralyze, centre center, litres liters, fibre fiber, titres titers, analogue analog, labelled labeled, "
    "signalling signaling, modelling modeling, programme program, sulphate sulfate, grey gray, ageing aging, "
    "defence defense, licence license, practise practice, enrolment enrollment, artefact artifact, "
    "leucocyte leukocyte, phaeochromocytoma pheochromocytoma, caesarean cesarean, manoeuvre maneuver, "
    "prioritise prioritize, immunised immunized, metastasised metastasized, emphasise emphasize"
)
SAME = (
    "exercise exercising advise rise arises raised otherwise likewise promise promising compromised comprising "
    "precise disease expertise surprise revised supervised incised noise praise treatise paradise appraise size "
    "premise cruise concise vision aerobic anaerobic coefficient does poem four course our journal courage tour "
    "dialysis analysis analyses basis visit science hence absence evidence influence difference merchandise"
)


@pytest.mark.parametrize("pair", PAIRS.split(", "))
def test_both_spellings_have_one_form(pair):
    british, american = pair.split()
    assert one_spelling(british) == one_spelling(american)


@pytest.mark.parametrize("word", SAME.split())
def test_other_words_stay(word):
    assert one_spelling(word) == word
