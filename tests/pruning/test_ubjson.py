"""Reading UBJSON: all types of the specification that XGBoost may write, and what it does write."""

import json
import struct

import numpy as np
import pytest

from manylens.pruning.ubjson import read_ubjson


def text(value):
    return b"i" + bytes([len(value)]) + value.encode()


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
        (b"T", True),
        (b"F", False),
        (b"Z", None),
        (b"S" + text("abc"), "abc"),
        (b"[]", []),
        (b"[TFi\x05]", [True, False, 5]),
        (b"[#i\x02ZS" + text("x"), [None, "x"]),
        (b"{" + text("a") + b"[i\x01]" + text("b") + b"{}}", {"a": [1], "b": {}}),
    ],
)
def test_values_are_read(content, value):
    found = read_ubjson(content)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("mark", "kind"),
    [("i", "i1"), ("U", "u1"), ("I", ">i2"), ("l", ">i4"), ("L", ">i8"), ("d", ">f4"), ("D", ">f8")],
)
def test_lists_of_one_type_are_arrays(mark, kind):
    values = np.array([0, 1, 100], dtype=kind)
    content = b"[" + b"$" + mark.encode() + b"#i\x03" + values.tobytes()
    found = read_ubjson(b"{" + text("a") + content + text("b") + b"T}")
    assert found["b"] is True
    np.testing.assert_array_equal(found["a"], values)


def test_other_bytes_are_refused():
    with pytest.raises(ValueError, match="byte 1 of the UBJSON begins no value: b'q'"):
        read_ubjson(b"[q]")


@pytest.mark.parametrize("classes", [2, 3])
def test_xgboost_writes_the_same_model_in_both_forms(classes):
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.arange(60) % classes
    booster = xgboost.XGBClassifier(n_estimators=3).fit(X, y).get_booster()

    def plain(value):
        if isinstance(value, dict):
            return {name: plain(each) for name, each in value.items()}
        if isinstance(value, list):
            return [plain(each) for each in value]
        return value.tolist() if isinstance(value, np.ndarray) else value

    def rounded(value):
        return json.loads(json.dumps(value), parse_float=np.float32)

    binary = plain(read_ubjson(bytes(booster.save_raw("ubj"))))
    assert rounded(binary) == rounded(json.loads(booster.save_raw("json")))
