"""Numbers, choices and element types as functions take them."""

from parbake._arrays import isinstance_of, name
from parbake._variant import number


def with_numbers(function, arguments):
    """The arguments with each number as the op has it: None is its default, and Python's integers may have any size."""
    arguments = list(arguments)
    for place, (_, role, _) in enumerate(function.parameters):
        if role in _CONVERSIONS:
            arguments[place] = _CONVERSIONS[role](function, place, arguments[place])
    return arguments


def chosen(function, place, value):
    """The number behind the name of a choice, or the name of an element type; None for one that is not given."""
    argument, role, values = function.parameters[place]
    if role == "element":
        known = None if value is None else name(value)
        if known is None or known in values:
            return known
    elif isinstance(value, (str, int, type(None))) and value in values:
        return values[value]
    elif role == "choice" and (found := number(function.op, value)) is not None:
        return found
    names = [v for v in values if isinstance(v, str)]
    also = " or a number" if role == "choice" else ""
    got = repr(value) if isinstance(value, (str, int)) else f"{type(value).__name__} {value}"
    raise (ValueError if isinstance(value, (str, int)) else TypeError)(
        f"parbake.{function.name}: an argument does not fit; nothing was launched\n"
        f"  {argument}: expected {' or '.join(names)}{also}, got {got}"
    )


def product(extents):
    """How many rows some leading dimensions are."""
    rows = 1
    for extent in extents:
        rows *= extent
    return rows


def as_float(value):
    """A number as a float; one that is too large for that is infinite, which no argument may be."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _float(function, place, value):
    if value is None:
        return function.parameters[place][2]
    return as_float(value) if type(value) is int else value


def _int(function, place, value):
    if value is None:
        return function.parameters[place][2]
    if isinstance_of("numpy", "integer", [value]):
        value = int(value)
    # TVM FFI takes 64 bits. What is larger is out of every op's range as well.
    return as_float(value) if type(value) is int and value.bit_length() > 63 else value


def _bool(function, place, value):
    if value is None:
        return function.parameters[place][2]
    if isinstance_of("numpy", "bool_", [value]) or value in (0, 1) and type(value) is int:
        return bool(value)
    return value


def _extent(function, place, value):
    return int(value) if isinstance_of("numpy", "integer", [value]) else value


_CONVERSIONS = {"float": _float, "int": _int, "bool": _bool, "choice": chosen, "element": chosen, "extent": _extent}
