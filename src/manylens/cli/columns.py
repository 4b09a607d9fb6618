"""Choosing the columns of a table, and turning them into numbers with scikit-learn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pandas.api import types

from manylens.cli import CommandError
from manylens.cli.tables import Rows, quoted

if TYPE_CHECKING:  # avoids importing scikit-learn and SciPy before the file is read
    from sklearn.compose import ColumnTransformer

    from manylens.typing import AnyArray

NESTED = ("lists", "records")  # kinds of columns whose values cannot be counted or compared
MOST_CATEGORIES = 200  # a text column with more values is a name or an identifier


@dataclass(frozen=True)
class ColumnOptions:
    """Treatment of columns that are not plain numbers; `scale` None means that only tables are scaled."""

    drop: tuple[str, ...] = ()
    impute: str | None = None
    one_hot: bool = False
    numeric_only: bool = False
    scale: bool | None = None


@dataclass(frozen=True)
class Features:
    """Names of the columns that a model uses."""

    numbers: list[str]
    categories: list[str]


def column(rows: Rows, name: str, option: str) -> pd.Series[Any]:
    """The column of this name; if there is none, the error names the nearest one."""
    if name not in rows.frame.columns:
        raise CommandError(f"{option}: {unknown_column(rows, name)}")
    return rows.frame[name]


def unknown_column(rows: Rows, name: str) -> str:
    """A sentence for a column that does not exist."""
    known = [str(each) for each in rows.frame.columns]
    lower = {each.lower(): each for each in known}
    found = get_close_matches(name.lower(), lower, 1)
    hint = f"did you mean {lower[found[0]]!r}?" if found else f"there are {quoted(known)}."
    return f"{rows.name} has no column {name!r}; {hint}"


def choose_features(rows: Rows, options: ColumnOptions, aside: Iterable[str | None] = ()) -> Features:
    """All columns but those to drop and those set aside (label, ids); raise for unusable columns."""
    for name in options.drop:
        column(rows, name, "--drop")
    beside = ("file", "folder") if rows.kind == "images" else ()
    left = rows.frame.drop(columns=[*{*options.drop, *aside, *beside} & set(rows.frame.columns)])
    numbers = [name for name in left if types.is_numeric_dtype(left[name]) and left[name].dtype.kind != "c"]
    text = [name for name in left if name not in set(numbers) and is_text(left[name])]
    other = left.columns.difference([*numbers, *text], sort=False)
    if options.numeric_only:
        text, other = [], other[:0]
    if len(other):
        name = other[0]
        raise CommandError(
            f"{rows.name}: neither numbers nor text in {quoted(other)} ({kind_of(left[name])}): leave them "
            f"out with --drop {shell_word(name)}, or use --numeric-only."
        )
    if text and not options.one_hot:
        firsts = [left[name].dropna().astype(str).iloc[:20] for name in text]
        commas = any(first.str.fullmatch(r"[-+]?\d+,\d+").all() for first in firsts)
        hint = " (numbers with decimal commas are read with --decimal ,)" if commas else ""
        raise CommandError(
            f"{rows.name}: text in {quoted(text)}{hint}. Leave them out with --drop {shell_word(text[0])} "
            "or --numeric-only, or encode them with --one-hot."
        )
    many = [name for name in text if left[name].nunique() > MOST_CATEGORIES]
    if many:
        raise CommandError(
            f"{rows.name}: more than {MOST_CATEGORIES} different texts in {quoted(many)}, too many for "
            f"--one-hot: leave them out with --drop {shell_word(many[0])}."
        )
    if not numbers and not text:
        raise CommandError(f"{rows.name} has no column of numbers to learn from.")
    refuse_missing(rows, numbers, text, options)
    return Features([str(name) for name in numbers], [str(name) for name in text])


def refuse_missing(rows: Rows, numbers: list[str], text: list[str], options: ColumnOptions) -> None:
    """Refuse infinite values, columns without any value and, unless they are imputed, missing values."""
    frame = rows.frame  # column by column: a copy of the whole table may not fit in memory
    infinite = [name for name in numbers if np.isinf(frame[name].to_numpy(float, na_value=np.nan)).any()]
    if infinite:
        raise CommandError(f"{rows.name}: infinite values in {quoted(infinite)}: repair them, or --drop.")
    counts = pd.Series({name: int(frame[name].isna().sum()) for name in [*numbers, *text]})
    empty = counts[counts == len(frame)].index
    if len(empty):
        raise CommandError(f"{rows.name}: no values in {quoted(empty)}: leave them out with --drop.")
    missing = counts[counts > 0]
    if len(missing) and options.impute is None:
        listed = ", ".join(f"{name!r} ({count:,})" for name, count in missing[:8].items())
        more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        raise CommandError(
            f"{rows.name}: values are missing in {listed}{more}. Fill them with --impute median, or leave "
            "the columns out with --drop."
        )


def is_text(values: pd.Series[Any]) -> bool:
    """Whether a column holds text or categories."""
    if isinstance(values.dtype, pd.CategoricalDtype) or types.is_string_dtype(values.dtype):
        return values.dtype != object or values.dropna().map(lambda each: isinstance(each, str)).all()
    return False


def kind_of(values: pd.Series[Any]) -> str:
    """Description of what a column holds."""
    first = values.dropna().iloc[:1]
    if values.dtype == object and len(first):
        kind = type(first.iloc[0])
        if kind in (dict, list, tuple, np.ndarray):
            return NESTED[kind is dict]
        return f"objects of type {kind.__name__}"
    return str(values.dtype)


def shell_word(name: Any) -> str:
    """A name, quoted for the shell."""
    from shlex import quote

    return quote(str(name))


def preparation(rows: Rows, features: Features, options: ColumnOptions) -> ColumnTransformer:
    """The transformer of chosen columns: impute, scale, encode."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

    scale = options.scale if options.scale is not None else rows.kind == "table"
    steps: list[Any] = [SimpleImputer(strategy=options.impute)] if options.impute else []
    steps += [StandardScaler()] if scale else []
    numbers = make_pipeline(*steps) if steps else FunctionTransformer(feature_names_out="one-to-one")
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False, dtype=np.float32)
    parts: list[Any] = []
    if features.numbers:
        parts.append(("numbers", numbers, features.numbers))
    if features.categories:  # a missing category is a category of its own
        parts.append(("categories", encoder, features.categories))
    return ColumnTransformer(parts, sparse_threshold=0, verbose_feature_names_out=False)


def model_columns(model: Any) -> list[str] | None:
    """The columns that a model was fitted to, if it knows their names."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def needed_columns(model: Any, *others: str | None) -> set[str] | None:
    """The columns of the model and the options, which are enough to read; None if the model has no names."""
    names = model_columns(model)
    return None if names is None else {*names, *(each for each in others if each is not None)}


def model_image_size(model: Any) -> int | None:
    """The side of the images that a model was learned from, according to its column names."""
    found = re.fullmatch(r"p(\d+)_\d+", (model_columns(model) or [""])[0])
    return int(found[1]) if found else None


def model_rows(model: Any, rows: Rows, aside: Sequence[str | None] = ()) -> Any:
    """The columns of a table that a model needs: by name, or all numbers if it knows no names."""
    names = model_columns(model)
    if names is not None:
        for name in names:
            if name not in rows.frame.columns:
                if rows.kind == "images" and (size := re.fullmatch(r"p(\d+)_\d+", name)):
                    raise CommandError(
                        f"the model was learned from images of another size: use --image-size {size[1]}."
                    )
                raise CommandError(f"the model uses the column {name!r}: {unknown_column(rows, name)}")
        return rows.frame[names]
    features = choose_features(rows, ColumnOptions(numeric_only=True), aside)
    width = getattr(model, "n_features_in_", None)
    if width is not None and width != len(features.numbers):
        raise CommandError(
            f"the model was fitted to {width} columns, but {rows.name} has {len(features.numbers)} columns "
            "of numbers: give the same columns in the same order."
        )
    return rows.frame[features.numbers].to_numpy()


def labels(rows: Rows, name: str, least_classes: int = 1) -> AnyArray:
    """The values of the label column; raises if some are missing, or if too few are different."""
    values = column(rows, name, "--label")
    if values.isna().any():
        raise CommandError(f"--label: {name!r} is missing in {values.isna().sum():,} rows: leave them out.")
    if (kind := kind_of(values)) in NESTED:
        raise CommandError(f"--label: {name!r} holds {kind} instead of one value per row.")
    if values.nunique() < least_classes:
        raise CommandError(
            f"--label: all rows have the same {name!r} ({values.iloc[0]!r}), but {least_classes} classes are "
            "needed: choose another column."
        )
    return values.to_numpy() if values.dtype.kind in "biuf" else values.to_numpy(dtype=str)
