"""The names that users import exist, are few and lazy, and type checkers see the same ones."""

import ast
import importlib
import pkgutil
import subprocess
import sys

import pytest

import manylens

MOST_NAMES = 35
PACKAGES = ["manylens"] + [
    f"manylens.{module.name}" for module in pkgutil.iter_modules(manylens.__path__) if module.ispkg
]
WITH_NAMES = [name for name in PACKAGES if hasattr(importlib.import_module(name), "__all__")]


def parsed(package):
    with open(importlib.import_module(package).__file__, encoding="utf-8") as file:
        return ast.parse(file.read())


def names_for_type_checkers(tree):
    """Module -> names, as imported under TYPE_CHECKING."""
    blocks = [
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    return {
        statement.module: {alias.name for alias in statement.names}
        for block in blocks
        for statement in block.body
    }


def names_in_lazy_table(package):
    """Module -> names, as given to `attach`; None if the package is not lazy."""
    for node in ast.walk(parsed(package)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "attach":
            table = eval(ast.unparse(node.args[1]), {"__all__": importlib.import_module(package).__all__})
            return {module: set(names) for module, names in table.items()}
    return None


LAZY = [name for name in WITH_NAMES if names_in_lazy_table(name) is not None]


def test_the_top_level_stays_small():
    count = len(manylens.__all__)
    assert count <= MOST_NAMES, f"{count} names: leave rarely used ones in their rooms."


@pytest.mark.parametrize("package", WITH_NAMES)
def test_every_public_name_exists_once(package):
    module = importlib.import_module(package)
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None


@pytest.mark.parametrize("package", LAZY)
def test_the_lazy_table_and_the_imports_for_type_checkers_agree(package):
    assert names_in_lazy_table(package) == names_for_type_checkers(parsed(package))


@pytest.mark.parametrize("package", LAZY)
def test_the_lazy_table_and_the_public_names_agree(package):
    names = {name for group in names_in_lazy_table(package).values() for name in group}
    assert names == set(importlib.import_module(package).__all__) - {"__version__"}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'manylens' has no attribute 'nothing'"):
        manylens.nothing  # noqa: B018


def test_importing_the_package_imports_no_heavy_package():
    program = "import sys, manylens; print(*(name for name in sys.modules if '.' not in name))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    heavy = {"numpy", "scipy", "sklearn", "numba", "pandas", "matplotlib", "torch", "joblib"}
    assert heavy.isdisjoint(run.stdout.split())


@pytest.mark.parametrize("room", ["plotting", "datasets", "cli", "explorer"])
def test_importing_a_room_does_not_import_matplotlib(room):
    program = (
        f"import sys, manylens.{room} as room; [getattr(room, n) for n in getattr(room, '__all__', [])]; "
    )
    program += "print('matplotlib' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
