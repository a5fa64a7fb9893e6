"""Which names are taken for those that Horae goes by, and which of people are not."""

from __future__ import annotations

import pytest

from horae.core.reserved_names import normal, similar_name

RESERVED = ("horae", "keeper", "local", "system")
ALIKE = {
    "local": [
        "lo\u0441al",
        "loc\u0251l",
        "\u01c0ocal",
        "\ua4e1ocal",
        "\u0142ocal",
        "l\u00f8cal",
        "Local",
        "\uff29ocal",
    ],
    "horae": ["\u0397\u039fR\u0391\u0395", "\uab8borae", "\u041dorae", "\u0127orae", "h0rae"],
    "system": ["systern", "SYSTERN", "s\u03a5stem", "syste\u039c", "\u13daystem", "sys\u0167em"],
    "keeper": ["k\u0435eper", "\u0199eeper", "\u13e6eeper", "keepe\u027d"],
}


@pytest.mark.parametrize(("reserved", "name"), [(reserved, name) for reserved in ALIKE for name in ALIKE[reserved]])
def test_a_name_drawn_like_a_reserved_one_is_told_whatever_script_its_letters_are_of(reserved: str, name: str) -> None:
    assert similar_name(name, RESERVED) == reserved


def test_so_is_one_that_is_written_in_another_script_altogether() -> None:
    assert similar_name("\u13de\u13be\u13df\u13aa\u13de", RESERVED) == "local"


@pytest.mark.parametrize(
    "name",
    [
        "ann",
        "locale",
        "\u0141ukasz",
        "\u00d8rjan",
        "Jos\u00e9",
        "\u0410\u043d\u043d\u0430",
        "\u0393\u03b9\u03ce\u03c1\u03b3\u03bf\u03c2",
        "modern",
        "ystem",
    ],
)
def test_names_of_people_look_like_none_and_stay_as_they_are(name: str) -> None:
    assert similar_name(name, RESERVED) is None
    assert normal(name) == name
