"""A NodeSelector as the API server writes it, as terms. Pure functions."""

from typing import Any

from interfere.serving.adapters.kubernetes.records import SelectorTerms


def selector_terms(selector: Any) -> SelectorTerms:
    """The terms of a NodeSelector, each as its (key, operator, values); none where it is no selector."""
    terms = selector.get("nodeSelectorTerms") if isinstance(selector, dict) else None
    return tuple(
        tuple(
            (str(each.get("key")), str(each.get("operator")), tuple(map(str, _list(each.get("values")))))
            for each in (*_list(term.get("matchExpressions")), *_list(term.get("matchFields")))
            if isinstance(each, dict)
        )
        for term in _list(terms)
        if isinstance(term, dict)
    )


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
