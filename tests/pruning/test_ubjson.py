"""Reading UBJSON: numbers and lists of all types of the specification, and the trees that XGBoost writes."""

import json
import struct

import numpy as np
import pytest

from manylens.pruning.boosted_formats import XGBOOST_FIELDS
from manylens.pruning.ubjson import read_arrays, read_list, read_number


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"i\xfe", -2),
        (b"U\xfe", 254),
        (b"I\x01\x02", 258),
        (b"l\xff\xff\xff\xff", -1),
        (b"L" + struct.pack(">q", 2**40), 2**40),
        (b"d" + struct.pack(">f", 0.5), 0.5),
        (b"D" + struct.pack(">d", 0.1), 0.1),
    ],
)
def test_numbers_are_read(content, value):
    found, end = read_number(b"??" + content + b"i", 2)
    assert found == value
    assert type(found) is type(value)
    assert end == 2 + len(content)
    lists = (
        b"[]",
        b"[" + 2 * content + b"]",
        b"[#i\x02" + 2 * content,
        b"[$" + content[:1] + b"#i\x02" + 2 * content[1:],
    )
    for number, each in enumerate(lists):
        assert read_list(b"?" + each + b"i", 1) == ([value] * 2 if number else [])


def array(name, mark, values):
    long = struct.pack(">q", len(name)), struct.pack(">q", len(values))
    return b"L" + long[0] + name.encode() + b"[$" + mark.encode() + b"#L" + long[1] + values.tobytes()


def test_arrays_of_many_dicts_are_joined():
    rng, dicts, wanted = np.random.default_rng(0), b"", {"a": [], "b": []}
    for n in (3, 0, 7):
        parts = {"a": rng.integers(256, size=n).astype("u1"), "b": rng.normal(size=2 * n).astype(">f4")}
        dicts += b"{" + array("a", "U", parts["a"]) + array("x", "l", np.arange(n, dtype=">i4"))
        dicts += array("b", "d", parts["b"]) + b"}"
        for name in parts:
            wanted[name].append(parts[name])
    found = read_arrays(b"[" + dicts + b"]", ["a", "b"], 3)
    for name, (sizes, joined) in found.items():
        assert sizes.tolist() == [len(each) for each in wanted[name]]
        np.testing.assert_array_equal(joined, np.concatenate(wanted[name]))
    with pytest.raises(ValueError, match="Dict 3 of the UBJSON has no array a of the expected type"):
        read_arrays(b"[" + dicts + b"]", ["a", "b"], 4)


def test_other_bytes_are_refused():
    with pytest.raises(ValueError, match="Byte 1 of the UBJSON begins no number: b'q'"):
        read_list(b"[q]", 0)
    with pytest.raises(ValueError, match="Byte 2 of the UBJSON begins no list: b'i'"):
        read_list(b"??i", 2)


@pytest.mark.parametrize("classes", [2, 3])
def test_xgboost_writes_the_same_trees_in_both_forms(classes):
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.arange(60) % classes
    booster = xgboost.XGBClassifier(n_estimators=3).fit(X, y).get_booster()
    learner, content = json.loads(booster.save_raw("json"))["learner"], bytes(booster.save_raw("ubj"))
    model = learner["gradient_booster"]["model"]
    found = read_arrays(content, XGBOOST_FIELDS, len(model["trees"]))
    assert read_list(content, content.rindex(b"tree_info") + 9) == model["tree_info"]
    for name in XGBOOST_FIELDS:
        sizes, joined = found[name]
        assert sizes.tolist() == [len(tree[name]) for tree in model["trees"]]
        np.testing.assert_array_equal(
            joined, np.float32(np.concatenate([tree[name] for tree in model["trees"]]))
        )
    settings = json.loads(booster.save_config())["learner"]["learner_model_param"]
    assert settings == learner["learner_model_param"]
