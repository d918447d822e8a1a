"""Signatures and help texts of operators, from their schemas."""
import keyword
import math
import textwrap


def _is_name(text):
    return text.isidentifier() and not keyword.iskeyword(text)


def _default(attribute):
    """The default as Python writes it; None for a default that is no plain value."""
    value = attribute.get("default")
    if isinstance(value, float) and not math.isfinite(value):
        return "None"
    return repr(value) if isinstance(value, (bool, int, float, str, list)) else "None"


def _counts_outputs(facts):
    """True if a call may ask for more results than it gets without `num_outputs`."""
    return facts["max_outputs"] > facts["min_outputs"] and facts["num_outputs"] < 0 and \
        all(a["name"] != "num_outputs" for a in facts["attributes"])


def parameters(facts):
    """The parameters of an operator's function, as in a def."""
    names = [i["name"] for i in facts["inputs"]]
    count = len(names) or max(facts["arity"], 0)
    names += [f"input{i}" for i in range(len(names), count)]
    # Attributes may decide the number of inputs; `arity` is the number without any.
    required = max(facts["min_inputs"], facts["arity"]) if facts["inputs"] else count
    attributes = [a for a in facts["attributes"] if _is_name(a["name"])]
    out, seen = [], {a["name"] for a in attributes} | {"out"}
    unnamed = not facts["inputs"]
    many = facts["max_inputs"] > len(names) and facts["arity"] != len(names)
    for i, name in enumerate(names):
        if not _is_name(name) or name in seen:
            name = f"input{i}"
            unnamed = True
        seen.add(name)
        if many and i == len(names) - 1 and facts["inputs"]:  # the last one may stand repeatedly
            break
        out.append(name if i < required else f"{name}=None")
    if out and unnamed:
        out.append("/")  # these inputs have no names in C++
    out.append("*" if not many else f"*{name}" if facts["inputs"] else "*inputs")
    out += [a["name"] if a["required"] else f"{a['name']}={_default(a)}" for a in attributes]
    out.append("out=None")
    if _counts_outputs(facts):
        out.append("num_outputs=None")
    if facts["takes_any_attribute"]:
        out.append("**attributes")
    return ", ".join(out)


def _described(name, kind, doc):
    head = f"  {name}: {kind}" if kind else f"  {name}"
    if not doc:
        return head
    return textwrap.fill(f"{head}. {doc}" if kind else f"{head}: {doc}", 88,
                         subsequent_indent="      ")


def _values(title, values):
    if not values:
        return []
    return [f"{title}:"] + [_described(v["name"], ", ".join(v["dtypes"]), v["doc"])
                            for v in values] + [""]


def help_text(facts):
    """The docstring of an operator's function, without its signature."""
    lines = [facts["doc"] or f"The operator {facts['name']}.", ""]
    lines += _values("Inputs", facts["inputs"])
    if facts["attributes"]:
        lines.append("Attributes:")
        for a in facts["attributes"]:
            kind = a["type"] + (", required" if a["required"] else "")
            if "default" in a:
                kind += f", default {a['default']!r}"
            if a["values"]:
                kind += ", one of " + ", ".join(map(repr, a["values"]))
            lines.append(_described(a["name"], kind, a["doc"]))
        lines.append("")
    lines += _values("Outputs", facts["outputs"])
    lines.append("out: an array, or a tuple of arrays, that gets the results.")
    if _counts_outputs(facts):
        lines.append(f"num_outputs: the number of results, by default {facts['min_outputs']}.")
    return "\n".join(lines)


def docstring(name, facts):
    """Signature and help, in the form in which CPython's own functions have them."""
    last = name.rpartition(".")[2]  # CPython compares the part behind the last dot
    return f"{last}({parameters(facts)})\n--\n\n{help_text(facts)}"
