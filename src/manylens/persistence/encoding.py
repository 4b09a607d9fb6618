"""Objects as JSON and arrays, and back, without running code that a file chooses.

In JSON, plain values and lists stand for themselves; everything else is an object with one tag.
"""

from __future__ import annotations

import copyreg
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy import sparse

from manylens.persistence import other_libraries
from manylens.persistence.classes import class_name, find_class, find_compiled, find_function
from manylens.persistence.files import PartReader, PartWriter
from manylens.typing import AnyArray

PLAIN = (type(None), bool, int, float, str)
SPARSE = {"csr_matrix": sparse.csr_matrix, "csr_array": sparse.csr_array, "csc_matrix": sparse.csc_matrix}
SPARSE["csc_array"] = sparse.csc_array
CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "slice": lambda items: slice(*items),
    "range": lambda items: range(*items),
    "complex": lambda items: complex(*items),
}
FUNCTIONS = (type, np.ufunc, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


class Encoder:
    """Turns an object into JSON, and its arrays into parts of a file."""

    def __init__(self, writer: PartWriter) -> None:
        self.writer = writer
        self.numbers: dict[int, int] = {}  # id of each array and object -> its number
        self.alive: list[Any] = []  # keeps temporary objects, so that no other gets their id
        self.open: set[int] = set()  # objects that are being encoded
        self.path: list[str] = []  # where we are, for error messages

    def encode(self, value: Any) -> Any:
        """JSON for a value."""
        kind = type(value)
        if kind in PLAIN:
            return value
        if kind is list:
            return self._items(value)
        if kind.__name__ == "_RemainderColsList":  # a list that warns, in scikit-learn's ColumnTransformer
            return self._items(value.data)
        if kind in (tuple, set, frozenset):
            return {kind.__name__: self._items(value)}
        if kind is dict:
            return {"dict": self._pairs(value)}
        if kind in (slice, range):
            return {kind.__name__: [self.encode(each) for each in (value.start, value.stop, value.step)]}
        if kind is complex:
            return {"complex": [value.real, value.imag]}
        if kind in (bytes, bytearray):
            return {kind.__name__: [self.writer.add(bytes(value)), len(value)]}
        if isinstance(value, np.dtype):
            return {"dtype": encode_dtype(value)}
        if isinstance(value, np.generic) and not value.dtype.hasobject:
            return {"scalar": [encode_dtype(value.dtype), value.tobytes().hex()]}
        if isinstance(value, FUNCTIONS):
            return self._function(value)
        return self._once(value)

    def _once(self, value: Any) -> Any:
        """An array or an object, or a reference to it if it was encoded before."""
        if id(value) in self.numbers:
            return {"again": self.numbers[id(value)]}
        if id(value) in self.open:
            raise self.refuse(f"refers to itself through {describe(type(value))}")
        self.open.add(id(value))
        self.alive.append(value)
        node = self._array(value) if isinstance(value, np.ndarray) else self._object(value)
        self.open.remove(id(value))
        self.numbers[id(value)] = len(self.numbers)
        return node

    def _array(self, value: AnyArray) -> Any:
        array = np.asarray(value)
        if array.dtype == object:
            return {"objects": [list(array.shape), self._items(array.ravel().tolist())]}
        if array.dtype.hasobject:
            raise self.refuse(f"is an array of {array.dtype}, which contains objects")
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        flat = np.ascontiguousarray(array.T if order == "F" else array).reshape(-1)
        part = self.writer.add(flat.view(np.uint8) if flat.nbytes else b"")
        return {"array": [part, encode_dtype(array.dtype), list(array.shape), order]}

    def _object(self, value: Any) -> Any:
        kind = type(value)
        if kind.__name__ in SPARSE and kind is SPARSE[kind.__name__]:
            parts = [self.encode(each) for each in (value.data, value.indices, value.indptr)]
            return {"sparse": [kind.__name__, list(value.shape), *parts]}
        if isinstance(value, np.random.RandomState):
            return {"random": ["RandomState", self.encode(value.get_state(legacy=False))]}
        if isinstance(value, np.random.Generator):
            return {"random": ["Generator", self.encode(value.bit_generator.state)]}
        adapter = other_libraries.ADAPTERS.get(f"{kind.__module__}.{kind.__qualname__}")
        if adapter is not None:
            content = adapter.take(value)
            if content is None:
                raise self.refuse(f"is {describe(kind)} in a form that a file cannot hold")
            return {"adapted": [f"{kind.__module__}.{kind.__qualname__}", self.encode(content)]}
        try:
            reduced = value.__reduce_ex__(4)
        except TypeError:
            raise self.refuse(f"is {describe(kind)}, which has no attributes that a file can hold") from None
        if isinstance(reduced, str):  # the name of a global object
            return self._function(value)
        make, args, state, items, pairs = (*reduced, None, None, None)[:5]
        name = class_name(kind)
        if find_compiled(name) is kind:
            numbers = args if make is kind else [each for each in args if isinstance(each, tuple)][-1]
            return {"compiled": [name, self._items(numbers)]}
        found = getattr(sys.modules.get(kind.__module__), kind.__qualname__, None)
        plain = make is copyreg.__newobj__ and args[0] is kind  # type: ignore[attr-defined]
        if found is not kind or not plain or kind.__module__ == "builtins":
            raise self.refuse(f"is {describe(kind)}, which cannot be made again from its attributes alone")
        left_out = dict.fromkeys(getattr(kind, "_unsaved", ()))
        state = {**state, **left_out} if left_out else state
        if isinstance(state, dict):  # callbacks of scikit-learn belong to the process, not to the model
            state = {key: each for key, each in state.items() if key != "_skl_callbacks"}
        state = value._state_for_file(state) if hasattr(kind, "_state_for_file") else state
        with self._within(f"{kind.__name__}."):
            slots = type(state) is tuple  # two dictionaries of attributes
            encoded = {"tuple": [self.encode(each) for each in state]} if slots else self.encode(state)
            content = [name, self._items(args[1:]), encoded]
            held = None if items is None else self._items(items)  # of a class derived from list or dict
            return {"object": [*content, held if pairs is None else {"dict": self._pairs(dict(pairs))}]}

    def _function(self, value: Any) -> Any:
        name = getattr(value, "__name__", "")
        for module in ("numpy", "sklearn.metrics"):
            if find_function(f"{module}.{name}") is value:
                return {"function": f"{module}.{name}"}
        what = "the class" if isinstance(value, type) else "the function"
        raise self.refuse(f"is {what} {getattr(value, '__module__', '')}.{name}, and a file holds only data")

    def _items(self, values: Any) -> list[Any]:
        found = []
        for k, each in enumerate(values):
            with self._within(f"[{k}]"):
                found.append(self.encode(each))
        return found

    def _pairs(self, values: Mapping[Any, Any]) -> list[list[Any]]:
        found = []
        attributes = not self.path or self.path[-1].endswith(".")  # of an object; others are keys of a dict
        for key, each in values.items():
            with self._within(key if attributes and isinstance(key, str) else f"[{key!r}]"):
                found.append([self.encode(key), self.encode(each)])
        return found

    @contextmanager
    def _within(self, step: str) -> Iterator[None]:
        self.path.append(step)
        yield
        self.path.pop()  # an error leaves the path as it is, for the message

    def refuse(self, fault: str) -> TypeError:
        """An error that says where the object is that cannot be saved, and why."""
        owners = [k for k, step in enumerate(self.path) if step.endswith(".")]
        where = "".join(self.path[owners[-1] if owners else 0 :]) or "The model"
        return TypeError(
            f"{where} {fault}: replace it with something that can be saved, or pickle the model."
        )


class Decoder:
    """Turns JSON and arrays back into objects; with `mmap`, rows of an index stay in the file."""

    def __init__(self, reader: PartReader, trusted: Mapping[str, type], mmap: bool) -> None:
        self.reader, self.trusted, self.mmap = reader, trusted, mmap
        self.mapping = False  # whether arrays are mapped at this place
        self.made: list[Any] = []
        self.unknown: list[str] = []  # names of classes that are neither on the list nor trusted

    def check_names(self, node: Any) -> None:
        """Collect the names of unknown classes in a part of the description."""
        if isinstance(node, dict):
            name = node["object"][0] if "object" in node else None
            if name is not None and name not in self.unknown and find_class(name, self.trusted) is None:
                self.unknown.append(name)
        for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            self.check_names(each)

    def decode(self, node: Any) -> Any:
        """The value that JSON stands for."""
        if type(node) in PLAIN:
            return node
        if isinstance(node, list):
            return [self.decode(each) for each in node]
        ((tag, content),) = node.items()
        if tag == "again":
            return self.made[self._count(content)]
        if tag in CONTAINERS:
            return CONTAINERS[tag]([self.decode(each) for each in content])
        if tag == "dict":
            return self._pairs(content)
        if tag in ("bytes", "bytearray"):
            data = self.reader.read(*content).tobytes()
            return bytearray(data) if tag == "bytearray" else data
        if tag == "dtype":
            # the bare dtype, which an imputer of text keeps, refers to no object
            return np.dtype(object) if content == "|O" else decode_dtype(content)
        if tag == "scalar":
            return np.frombuffer(bytes.fromhex(content[1]), dtype=decode_dtype(content[0]))[0]
        if tag == "function":
            found = find_function(content)
            if found is None:
                raise self.reader.damaged(f"it names {content!r}")
            return found
        made = getattr(self, f"_{tag}")(content) if tag in TAGS else None
        if made is None:
            raise self.reader.damaged(f"it contains {tag!r}")
        self.made.append(made)
        return made

    def _array(self, content: Any) -> AnyArray:
        part, dtype, shape, order = content
        kind, shape = decode_dtype(dtype), tuple(self._count(each) for each in shape)
        size = kind.itemsize
        for each in shape:
            size *= each
        data = self.reader.map(part, size) if self.mapping else self.reader.read(part, size)
        if not size:
            return np.empty(shape, dtype=kind, order=order)
        array = np.asarray(data).view(kind).reshape(shape, order="F" if order == "F" else "C")
        return array if kind.isnative else array.astype(kind.newbyteorder("="))

    def _objects(self, content: Any) -> AnyArray:
        shape, items = tuple(self._count(each) for each in content[0]), content[1]
        array = np.empty(len(items), dtype=object)
        for k, each in enumerate(items):
            array[k] = self.decode(each)
        return array.reshape(shape)

    def _sparse(self, content: Any) -> Any:
        name, shape, *parts = content
        data, indices, indptr = (self.decode(each) for each in parts)
        kind = SPARSE[name]
        matrix = kind((data, indices, indptr), shape=tuple(self._count(each) for each in shape))
        matrix.check_format(full_check=True)
        return matrix

    def _random(self, content: Any) -> Any:
        kind, state = content[0], self.decode(content[1])
        inner = state["state"]
        if state["bit_generator"] not in BIT_GENERATORS or not 0 <= inner.get("pos", 0) <= 624:
            raise self.reader.damaged("it contains an impossible state of a random generator")
        if kind == "RandomState":
            legacy = np.random.RandomState()
            legacy.set_state(state)
            return legacy
        bits = getattr(np.random, state["bit_generator"])()
        bits.state = state
        return np.random.Generator(bits)

    def _adapted(self, content: Any) -> Any:
        return other_libraries.ADAPTERS[content[0]].make(self.decode(content[1]))

    def _compiled(self, content: Any) -> Any:
        kind, numbers = find_compiled(content[0]), [self.decode(each) for each in content[1]]
        if kind is None or not all(isinstance(each, int | float) for each in numbers):
            raise self.reader.damaged(f"it names {content[0]!r}")
        return kind(*numbers)

    def _object(self, content: Any) -> Any:
        name, args, state, held = content
        kind: Any = find_class(name, self.trusted)
        if kind is None:
            raise self.reader.damaged(f"it names {name!r}")
        outside, self.mapping = self.mapping, self.mmap and getattr(kind, "_mappable", False)
        made = kind.__new__(kind, *(self.decode(each) for each in args))
        attributes = self.decode(state)
        self.mapping = outside
        if held is not None:
            items = self.decode(held)
            made.extend(items) if isinstance(items, list) else made.update(items)
        if attributes is not None:
            set_state(made, attributes)
        other_libraries.check_estimator(made)
        return made

    def _pairs(self, content: Any) -> dict[Any, Any]:
        return {self.decode(key): self.decode(value) for key, value in content}

    def _count(self, value: Any) -> int:
        if type(value) is not int or value < 0:
            raise self.reader.damaged(f"{value!r} is not a size")
        return value


TAGS = ("array", "objects", "sparse", "random", "adapted", "compiled", "object")


def set_state(made: Any, state: Any) -> None:
    """Set attributes as unpickling does."""
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
        return
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    made.__dict__.update(attributes or {})
    for name, value in (slots or {}).items():
        object.__setattr__(made, name, value)


def encode_dtype(dtype: np.dtype[Any]) -> Any:
    """JSON for a NumPy type; structured types by their fields."""
    if dtype.fields is None:
        return dtype.str
    names = list(dtype.names or ())
    formats = [encode_dtype(dtype.fields[name][0]) for name in names]
    return [names, formats, [dtype.fields[name][1] for name in names], dtype.itemsize]


def decode_dtype(node: Any) -> np.dtype[Any]:
    """The NumPy type of `encode_dtype`."""
    if isinstance(node, str):
        dtype = np.dtype(node)
    else:
        names, formats, offsets, size = node
        kinds = [decode_dtype(each) for each in formats]
        ends = (start + kind.itemsize for start, kind in zip(offsets, kinds, strict=True))
        if min(offsets, default=0) < 0 or max(ends, default=0) > size:  # NumPy's own check can overflow
            raise ValueError("The file contains an array whose fields overlap its end.")
        dtype = np.dtype({"names": names, "formats": kinds, "offsets": offsets, "itemsize": size})
    if dtype.hasobject:
        raise ValueError("The file contains an array of objects as plain bytes.")
    return dtype


def describe(kind: type) -> str:
    """A class with its module, as in "a scipy.interpolate.interp1d"."""
    return f"a {kind.__module__}.{kind.__qualname__}"
