"""Numbers as words: one way to print a percentage, a difference, a p value, a count.

Run the examples: `python -m doctest -v stats/words.py`
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal

from stsr.stats.results import Proportion

DASH = "–"
MINUS = "−"
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def percent(value: float | None) -> str:
    """A fraction in percent, one decimal.

    >>> percent(0.161), percent(0.2875), percent(0.4875), percent(None)
    ('16.1', '28.8', '48.8', '–')
    """
    return DASH if value is None else f"{_hundredfold(value):.1f}"


def points(value: float | None) -> str:
    """A difference in percentage points, signed.

    >>> points(1.1), points(-0.85), points(0.0), points(0.2875), points(-0.2875)
    ('+110.0', '−85.0', '0.0', '+28.8', '−28.8')
    """
    if value is None:
        return DASH
    text = f"{_hundredfold(value):+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", MINUS)


def _hundredfold(value: float) -> Decimal:
    """100 times a value, to a tenth; halves go away from zero. 0.2875 stands for 23/80 and not for a float
    a little below it, so the tenth digit is settled first."""
    exact = round(Decimal(value) * 100, 9)
    return exact.quantize(Decimal("0.1"), ROUND_HALF_UP)


def p_value(p: float) -> str:
    """A p value with three significant digits.

    >>> p_value(2 ** -16), p_value(0.0625), p_value(186 / 256), p_value(1.0)
    ('1.53×10⁻⁵', '0.0625', '0.727', '1')
    """
    if p >= 0.001:
        return f"{p:.3g}"
    mantissa, exponent = f"{p:.2e}".split("e")
    return f"{mantissa}×10{str(int(exponent)).translate(SUPERSCRIPT)}"


def k_of_n(proportion: Proportion | None) -> str:
    """k/n, or a dash where undefined.

    >>> k_of_n(None)
    '–'
    """
    return f"{proportion.k}/{proportion.n}" if proportion and proportion.n else DASH


def bounds(proportion: Proportion) -> str:
    """The interval of a proportion, in percent."""
    return f"{percent(proportion.low)} to {percent(proportion.high)}"


def listed(words: Sequence[str]) -> str:
    """Words with commas and a final "and".

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
