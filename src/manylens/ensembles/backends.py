"""Where candidates come from: a scan of the leading coordinates, or faiss's inverted lists.

A back end is built from the leading coordinates of the base, grows by `add` and answers `candidates`. One
that `proves` gives, with every candidate, a score that bounds the distance of the rows it did not name.
"""

from typing import Any

from manylens.ensembles.faiss_lists import FaissLists
from manylens.ensembles.leading_scan import LeadingScan

BACKENDS: dict[str, Any] = {"numpy": LeadingScan, "faiss": FaissLists}
