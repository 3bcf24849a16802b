"""OpenSLO documents by kind and name, as references find them."""

from __future__ import annotations

from collections.abc import Sequence

from triton_slo.convert.entry import Entry, EntryError
from triton_slo.convert.ledger import Ledger

VERSION = "openslo/v1"
KINDS = (
    "SLO",
    "SLI",
    "AlertPolicy",
    "AlertCondition",
    "AlertNotificationTarget",
    "DataSource",
    "Service",
)


class Library:
    """Documents by kind and name, and which of them somebody referred to."""

    def __init__(self, documents: Sequence[Entry], ledger: Ledger) -> None:
        self._documents: dict[tuple[str, str], Entry] = {}
        self._used: set[tuple[str, str]] = set()
        for document in documents:
            try:
                key = _kind_and_name(document)
                if key in self._documents:
                    reason = f"{key[0]} {key[1]!r} is there already ({self._documents[key].place})"
                    raise EntryError(document, reason)
                self._documents[key] = document
            except EntryError as error:
                ledger.wrong(error.entry, str(error))

    def of(self, kind: str) -> dict[str, Entry]:
        """Return all documents of a kind by name."""
        return {name: entry for (its, name), entry in self._documents.items() if its == kind}

    def find(self, kind: str, reference: Entry) -> Entry:
        """Return the document that a reference names. Raises EntryError where there is none."""
        key = kind, reference.text()
        if key not in self._documents:
            raise EntryError(reference, f"no {kind} is named {reference.text()!r} in these files")
        self._used.add(key)
        return self._documents[key]

    def optional(self, kind: str, reference: Entry) -> Entry | None:
        """Return the document that a reference names, if it is here."""
        key = kind, reference.text()
        self._used.add(key)
        return self._documents.get(key)

    def used(self) -> list[Entry]:
        """Return the documents that somebody referred to."""
        return [entry for key, entry in self._documents.items() if key in self._used]

    def unused(self) -> list[Entry]:
        """Return the documents other than SLOs that nobody referred to."""
        return [entry for key, entry in self._documents.items() if key[0] != "SLO" and key not in self._used]


def _kind_and_name(document: Entry) -> tuple[str, str]:
    fields = document.fields()
    if "apiVersion" not in fields and "slos" in fields:
        raise EntryError(document, "this is not an OpenSLO document; use --from sloth for Sloth's files")
    version = document.need("apiVersion")
    if version.text() != VERSION:
        raise EntryError(version, f"{version.text()!r} is not {VERSION}, the one version that is read here")
    kind = document.need("kind")
    if kind.text() not in KINDS:
        raise EntryError(kind, f"{kind.text()!r} is not a kind of {VERSION}: {', '.join(KINDS)}")
    return kind.text(), document.need("metadata").need("name").text()
