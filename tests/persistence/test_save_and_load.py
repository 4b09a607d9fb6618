"""What `save` writes, `load` reads: every public class, and models with other libraries' objects."""

import importlib
import pickle
import re
import sys
import zipfile
from collections import UserList
from threading import Lock

import joblib
import numpy as np
import pytest
from scipy import sparse
from scipy.interpolate import interp1d
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import manylens
from manylens import AlignmentPruner, CountSketch, ModularKernelPCA
from manylens.datasets import make_friedman
from manylens.persistence import classes, encoding
from manylens.persistence.classes import OWN
from manylens.pruning import TreePruner
from tests.persistence.fitted import (
    MODELS,
    NEW,
    OPTIONAL,
    RECIPES,
    X,
    answers,
    fitted,
    lenses,
    public_classes,
    y,
)

PUBLIC = [name for name in public_classes() if RECIPES.get(name, True) is not None]

NETWORKS = ("NegativeCorrelationClassifier", "NegativeCorrelationRegressor", "NetworkAutoencoder")
NEEDS = {name: package for name, (package, _) in OPTIONAL.items()} | dict.fromkeys(NETWORKS, "torch")
ADDRESS = re.compile("0x[0-9a-f]+")  # in the text of an object


def assert_same(one, other):
    """Equal values, arrays bit for bit, in nested containers."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        one, other = list(one.values()), list(other.values())
    if isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    elif sparse.issparse(one):
        assert_same([one.data, one.indices, one.indptr], [other.data, other.indices, other.indptr])
    elif hasattr(one, "to_numpy"):
        np.testing.assert_array_equal(one.to_numpy(), other.to_numpy())
    elif isinstance(one, np.ndarray | np.generic | str | float | int | bool | type(None)):
        np.testing.assert_array_equal(one, other)


def round_trip(model, folder, **options):
    manylens.save(model, folder / "model.manylens")
    return manylens.load(folder / "model.manylens", **options)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*PUBLIC, *MODELS, *OPTIONAL])
def test_a_loaded_model_answers_like_the_saved_one(name, tmp_path, monkeypatch):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    monkeypatch.setitem(sys.modules, "skops.io", None)
    model = fitted(name)
    expected = answers(name, model)
    if hasattr(model, "fit"):
        assert any(not isinstance(each, str) for each in expected.values()) or name.startswith("kernels.")
    loaded = round_trip(model, tmp_path)
    assert type(loaded) is type(model)
    assert_same(expected, answers(name, loaded))
    if isinstance(model, manylens.AlignmentPruner):  # its file holds only the kept members of the ensemble
        one, other = (each.get_params(deep=False) | {"ensemble": None} for each in (loaded, model))
        assert one == other
    elif hasattr(model, "get_params"):
        assert ADDRESS.sub("", str(loaded)) == ADDRESS.sub("", str(model))
    if isinstance(model, dict | list | tuple):
        assert_same(model, loaded)


@pytest.mark.filterwarnings("ignore")
def test_the_list_of_classes_is_complete_and_has_no_others(tmp_path, monkeypatch):
    held = set()

    def noted(kind):
        held.add(f"{kind.__module__}.{kind.__qualname__}")
        return classes.class_name(kind)

    monkeypatch.setattr(encoding, "class_name", noted)
    for name in [*PUBLIC, *MODELS, *OPTIONAL]:
        if name not in NEEDS or importlib.util.find_spec(NEEDS[name]):
            manylens.save(fitted(name), tmp_path / "model.manylens")
    public = {f"{kind.__module__}.{kind.__qualname__}" for kind in public_classes().values()}
    own = {f"{module}.{name}" for module, names in OWN.items() for name in names}
    assert not {name for name in held if name.startswith("manylens.")} - own, "add these to OWN"
    optional = {
        "manylens.ensembles.faiss_finder.FaissFinder",
        "manylens.transfer.network_layers.LayerSketches",
    }
    optional |= {
        "manylens.pruning.boosting_members.LightGBMStages",
        "manylens.pruning.boosting_members.XGBoostStages",
    }
    if not importlib.util.find_spec("torch"):
        optional.add("manylens.modules.networks.StackedNetworks")
    assert sorted(own - held - public - optional) == [], "remove these from OWN"
    for name in own:  # each is a class of the module that the list names
        module, _, attribute = name.rpartition(".")
        assert getattr(importlib.import_module(module), attribute).__module__ == module


def test_a_loaded_model_can_be_updated(tmp_path):
    options = {"feature_map": "nystroem", "landmarks": X[:30], "gamma": 1e-3, "random_state": 0}
    model = ModularKernelPCA(3, 2, **options).partial_fit(X[:100])
    resumed = round_trip(model, tmp_path).partial_fit(X[100:])
    whole = ModularKernelPCA(3, 2, **options).fit(X)
    np.testing.assert_allclose(resumed.spectrum_, whole.spectrum_, rtol=1e-8)
    sketch = round_trip(CountSketch(8).update(X[:100]), tmp_path).update(X[100:])
    np.testing.assert_allclose(sketch.summary_, CountSketch(8).update(X).summary_, atol=1e-12)


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6.0).reshape(2, 3).T,
        np.zeros((0, 3), dtype=np.float32),
        np.array(["a", "bc"]),
        np.array(["a", None, 3], dtype=object),
        np.array([("a", 1.5)], dtype=[("name", "U3"), ("value", "f4")]),
        np.array(["2024-01-01"], dtype="M8[D]"),
        np.arange(3, dtype=">i4"),
        np.float32(0.1),
        float("nan"),
        float("inf"),
        2**100,
        b"bytes",
        1 - 2j,
        range(3, 11, 2),
        (1, [2, {3}], {"four": (5,)}),
        sparse.random(5, 4, 0.5, format="csr", random_state=0),
        sparse.csc_array(np.eye(3)),
    ],
    ids=str,
)
def test_values_are_the_same_after_loading(value, tmp_path):
    assert_same(value, round_trip(value, tmp_path))


@pytest.mark.parametrize("remainder", ["drop", "passthrough"])
def test_columns_that_a_column_transformer_leaves_out_are_saved(remainder, tmp_path):
    rows = np.arange(12.0).reshape(4, 3)
    model = ColumnTransformer([("scaled", StandardScaler(), [1])], remainder=remainder).fit(rows)
    manylens.save(model, tmp_path / "model")
    np.testing.assert_array_equal(manylens.load(tmp_path / "model").transform(rows), model.transform(rows))


def test_a_list_that_warns_is_saved_as_a_plain_one(tmp_path):
    class _RemainderColsList(UserList):  # as in scikit-learn 1.6, which later versions do not have
        def __getitem__(self, index):
            raise AssertionError("its elements were accessed")

    manylens.save({"columns": _RemainderColsList([0, 2])}, tmp_path / "model")
    assert manylens.load(tmp_path / "model") == {"columns": [0, 2]}


def test_loaded_arrays_keep_their_layout_and_can_be_written(tmp_path):
    loaded = round_trip([np.asfortranarray(np.eye(3)[:, :2]), np.eye(3)], tmp_path)
    assert loaded[0].flags.f_contiguous
    assert all(array.flags.writeable and array.flags.aligned for array in loaded)


def test_shared_objects_stay_shared(tmp_path):
    array = np.arange(3)
    loaded = round_trip({"a": array, "b": [array]}, tmp_path)
    assert loaded["a"] is loaded["b"][0]


def test_sketches_of_layers_need_no_network_after_loading(tmp_path):
    pytest.importorskip("torch")
    sketches = fitted("sketches of layers")
    loaded = round_trip(sketches, tmp_path)
    rows = {name: np.ones((3, own.shape[1]), dtype=np.float32) for name, own in sketches.items()}
    assert_same(loaded.transform(rows), sketches.transform(rows))
    with pytest.raises(
        ValueError, match=r"does not contain the network: .*collect_layers\(network, batches\)"
    ):
        loaded.transform([NEW])


def test_random_generators_continue(tmp_path):
    for make in (np.random.default_rng, np.random.RandomState):
        generator = make(0)
        generator.standard_normal(3)
        loaded = round_trip(generator, tmp_path)
        np.testing.assert_array_equal(loaded.standard_normal(5), generator.standard_normal(5))


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("kind", [TreePruner, AlignmentPruner])
def test_boosting_is_saved_with_the_history_of_its_training(library, kind, tmp_path):
    name = {"lightgbm": "LGBMRegressor", "xgboost": "XGBRegressor"}[library]
    X, y = make_friedman(300, random_state=0)
    model = getattr(pytest.importorskip(library), name)(n_estimators=10, verbosity=0)
    model.fit(X[:100], y[:100], eval_set=[(X[100:150], y[100:150])])
    options = {"max_nodes": 60} if kind is TreePruner else {"anchor": 0.0}
    pruner = kind(model, **options).fit(X[150:], y[150:])
    loaded = round_trip(pruner, tmp_path)
    np.testing.assert_array_equal(loaded.predict(X), pruner.predict(X))
    if kind is AlignmentPruner:
        history = model.evals_result_ if library == "lightgbm" else model.evals_result()
        again = loaded.ensemble_
        assert history == (again.evals_result_ if library == "lightgbm" else again.evals_result())


def test_functions_are_refused_when_saving(tmp_path):
    path = tmp_path / "model.manylens"
    for kernel, said in (
        (np.dot, "the function numpy.dot"),
        (lambda a, b: a @ b.T, "the function .*lambda>"),
    ):
        with pytest.raises(TypeError, match=f"ModularKernelPCA.kernel is {said}, and a file holds only data"):
            manylens.save(ModularKernelPCA(3, 2, kernel=kernel), path)
    for value, said in (
        (re.compile("x"), "re.Pattern, which has no attributes"),
        (Lock(), "_thread.lock"),
        (object(), "builtins.object, which cannot be made again"),
    ):
        with pytest.raises(TypeError, match=rf"\[0\] is a {said}"):
            manylens.save([value], path)
    with pytest.raises(TypeError, match=r"^interp1d\._call is the function scipy\.interpolate"):
        manylens.save(interp1d([0.0, 1.0], [0.0, 2.0]), path)
    holder = CountSketch(4)
    holder.history = {"first": {"loss": [object()]}}
    with pytest.raises(
        TypeError, match=r"^CountSketch\.history\['first'\]\['loss'\]\[0\] is a builtins\.object"
    ):
        manylens.save(holder, path)
    holder = CountSketch(4)
    holder.itself = holder
    with pytest.raises(TypeError, match=r"CountSketch\.itself refers to itself"):
        manylens.save(holder, path)
    assert not list(tmp_path.iterdir())


class Doubling(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.factor_ = 2.0
        return self

    def transform(self, X):
        return self.factor_ * X


def test_other_classes_are_loaded_only_if_trusted(tmp_path):
    model = make_pipeline(Doubling(), lenses()).fit(X)
    name = f"{Doubling.__module__}.Doubling"
    with pytest.raises(
        TypeError, match=rf"model.manylens contains {name}, .* use load\(path, trusted=\['{name}'\]\)"
    ):
        round_trip(model, tmp_path)
    for trusted in ([Doubling], [name]):
        np.testing.assert_array_equal(
            round_trip(model, tmp_path, trusted=trusted).transform(NEW), model.transform(NEW)
        )
    with pytest.raises(TypeError, match="trusted contains 3, which is not a class"):
        round_trip(model, tmp_path, trusted=[3])


def test_libsvm_is_loaded_only_if_trusted(tmp_path):
    model = make_pipeline(lenses(), SVC()).fit(X, y)
    with pytest.raises(TypeError, match=r"contains sklearn\.svm\.SVC"):
        round_trip(model, tmp_path)
    np.testing.assert_array_equal(round_trip(model, tmp_path, trusted=[SVC]).predict(NEW), model.predict(NEW))


def test_loading_something_else_says_what_it_is(tmp_path):
    path = tmp_path / "it"
    for content, said in (
        (b"", "it is an empty file"),
        (b"name,value\n1,2\n", "it is a text file"),
        ("ümlaut ".encode() * 200, "it is a text file"),
        (pickle.dumps(3), "it is a pickle, which could run any code"),
        (bytes(range(1, 200)), "it is not a file that manylens knows"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=said):
            manylens.load(path)
    joblib.dump(X, path, compress=3)
    with pytest.raises(ValueError, match=r"it is a compressed file, .* use joblib\.load"):
        manylens.load(path)
    joblib.dump(X, path)
    with pytest.raises(ValueError, match="it is a pickle"):
        manylens.load(path)
    with open(path, "wb") as stream:
        np.save(stream, X)
    with pytest.raises(ValueError, match=r"it is an array: use numpy\.load"):
        manylens.load(path)
    with open(path, "wb") as stream:
        np.savez(stream, X)
    with pytest.raises(ValueError, match="it is a zip file without a model"):
        manylens.load(path)
    with pytest.raises(IsADirectoryError, match="is a folder: give a file"):
        manylens.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        manylens.load(tmp_path / "nothing")


# a node of a skops file that lacks its content
BROKEN_NODE = '{"__class__": "dict", "__module__": "builtins", "__loader__": "DictNode"}'


class TestSkopsFiles:
    @pytest.fixture
    def skops(self):
        return pytest.importorskip("skops.io")

    def test_models_are_read(self, skops, tmp_path):
        for name in ("ModularKernelPCA", "CountSketch", "NCA"):
            skops.dump(fitted(name), tmp_path / "model.skops")
            assert_same(answers(name, fitted(name)), answers(name, manylens.load(tmp_path / "model.skops")))

    def test_other_classes_and_functions_are_loaded_only_if_trusted(self, skops, tmp_path):
        path = tmp_path / "model.skops"
        skops.dump(Doubling().fit(X), path)
        with pytest.raises(TypeError, match=r"contains .*Doubling, which could run any code"):
            manylens.load(path)
        assert manylens.load(path, trusted=[Doubling]).factor_ == 2
        from manylens.cli import main

        skops.dump(main, path)
        with pytest.raises(TypeError, match=r"contains manylens\.cli\.main, which could run"):
            manylens.load(path)

    def test_a_file_that_unpacks_to_too_much_is_refused(self, skops, tmp_path):
        path = tmp_path / "model.skops"
        skops.dump({"zeros": np.zeros(10**6)}, path, compression=8, compresslevel=9)
        assert path.stat().st_size < 20_000
        with pytest.raises(
            ValueError, match=r"takes 8,00.* bytes when unpacked, more than max_bytes=1,000,000"
        ):
            manylens.load(path, max_bytes=10**6)
        assert len(manylens.load(path)["zeros"]) == 10**6

    @pytest.mark.parametrize("schema", ["", "{", "[]", "null", "3", "{}", '{"protocol": 99}', BROKEN_NODE])
    def test_a_broken_schema_is_refused_in_our_words(self, skops, schema, tmp_path):
        with zipfile.ZipFile(tmp_path / "model.skops", "w") as archive:
            archive.writestr("schema.json", schema)
        with pytest.raises(
            ValueError, match=r"^model\.skops is a skops file that is damaged or was modified"
        ):
            manylens.load(tmp_path / "model.skops")

    def test_a_missing_member_is_refused_in_our_words(self, skops, tmp_path):
        skops.dump({"ones": np.ones(3)}, tmp_path / "whole")
        with zipfile.ZipFile(tmp_path / "whole") as whole, zipfile.ZipFile(tmp_path / "part", "w") as part:
            part.writestr("schema.json", whole.read("schema.json"))
        with pytest.raises(ValueError, match=r"part is a skops file that is damaged or was modified"):
            manylens.load(tmp_path / "part")

    def test_without_skops_it_says_what_to_install(self, skops, monkeypatch, tmp_path):
        skops.dump(fitted("CountSketch"), tmp_path / "model.skops")
        monkeypatch.setitem(sys.modules, "skops.io", None)
        with pytest.raises(ImportError, match=r'pip install "manylens\[save\]"'):
            manylens.load(tmp_path / "model.skops")


def test_no_module_is_imported_because_a_file_names_it(tmp_path, monkeypatch):
    imported = []
    real = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", lambda name: imported.append(name) or real(name))
    for name in (
        "manylens.__main__.x",
        "manylens.cli.main",
        "this.s",
        "os.system",
        "sklearn.svm.SVC",
        "nothing",
    ):
        assert classes.find_class(name, {}) is None
        assert classes.find_function(name) is None
        assert classes.find_compiled(name) is None
    assert set(imported) <= {"sklearn.svm"}


def test_the_type_of_objects_can_be_saved_but_no_array_of_it_as_bytes(tmp_path):
    pandas = pytest.importorskip("pandas")
    from sklearn.impute import SimpleImputer

    text = pandas.DataFrame({"a": ["x", None, "x"]}, dtype=object)
    imputer = SimpleImputer(strategy="most_frequent", missing_values=None).fit(text)
    manylens.save(imputer, tmp_path / "imputer")
    assert manylens.load(tmp_path / "imputer").transform(text).tolist() == [["x"], ["x"], ["x"]]
