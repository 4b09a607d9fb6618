"""Parts of an index that do not answer."""

import pickle

from manylens.cluster.local_parts import LocalParts


class SomeParts(LocalParts):
    """Parts of which some do not answer: `absent(method, slot)` says which."""

    def __init__(self, layout, modules, absent):
        super().__init__(layout, modules)
        self.absent = absent

    def ask(self, requests, enough, soft, hard):
        present = {slot: ask for slot, ask in requests.items() if not self.absent(ask[0], slot)}
        return super().ask(present, lambda _answered, left: not left, soft, hard)


def without(index, absent, queries, **options):
    """The result of an index of which some parts do not answer."""
    other = pickle.loads(pickle.dumps(index))
    other._parts = SomeParts(index.layout_, index.modules_, absent)
    return other.kneighbors(queries, **options)
