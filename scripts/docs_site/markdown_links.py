"""Links and headings of Markdown texts as code hosts read them. Standard library only: the tests use it, too."""
import re
import typing

_FENCE = re.compile(r"^[ ]{0,12}(```+|~~~+)")
_HEADING = re.compile(r"^[ ]{0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$")
_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_REFERENCE = re.compile(r"^[ ]{0,3}\[[^\]]+\]:[ \t]*<?([^\s>]+)", re.MULTILINE)
_ATTRIBUTE = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=\"([^\"]*)\"")
_ANCHOR = re.compile(r"<\w+\b[^>]*?\b(?:id|name)=\"([^\"]+)\"")


class Link(typing.NamedTuple):
    begin: int  #: of the target in the text
    end: int
    target: str


def without_code(text):
    """The text with spaces in the places of code and comments, so that positions stay."""
    blank = lambda part: re.sub(r"[^\n]", " ", part)  # noqa: E731
    lines, fence = [], None
    for line in text.splitlines(keepends=True):
        found = _FENCE.match(line)
        if fence is None and found:
            fence = found[1]
        elif fence is not None and found and found[1].startswith(fence) and not line.strip().strip(fence[0]):
            fence = None
            lines.append(blank(line))
            continue
        lines.append(blank(line) if fence is not None else line)
    text = "".join(lines)
    text = re.sub(r"<!--.*?-->", lambda m: blank(m[0]), text, flags=re.DOTALL)
    return _CODE.sub(lambda m: blank(m[0]), text)


def _target_at(text, begin):
    """Where the target that begins there, perhaps after spaces, begins and ends, or None if there is none."""
    while text[begin : begin + 1] == " ":
        begin += 1
    if text[begin : begin + 1] == "<":
        end = text.find(">", begin)
        return (begin + 1, end) if end > 0 else None
    depth = 0
    for at in range(begin, len(text)):
        if text[at] in " \t\n" or (text[at] == ")" and depth == 0):
            return (begin, at)
        depth += {"(": 1, ")": -1}.get(text[at], 0)
    return None


def links(text):
    """All targets of links and pictures, in their order."""
    seen = without_code(text)
    found = []
    for opening in re.finditer(r"\]\(", seen):
        span = _target_at(seen, opening.end())
        if span is not None and span[1] > span[0]:
            found.append(span)
    for pattern in (_REFERENCE, _ATTRIBUTE):
        found += [match.span(1) for match in pattern.finditer(seen)]
    return [Link(begin, end, text[begin:end]) for begin, end in sorted(found)]


def slug(heading):
    """The anchor of a heading."""
    heading = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    heading = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return heading.replace(" ", "-")


def anchors(text):
    """All anchors of a page. A heading that occurs again has a number."""
    found, count = set(), {}
    outside = without_code(text).splitlines()
    for line, shown in zip(text.splitlines(), outside):
        heading = _HEADING.match(line)
        if heading is None or _HEADING.match(shown.ljust(len(line))) is None:
            continue
        name = slug(heading[2])
        found.add(f"{name}-{count[name]}" if name in count else name)
        count[name] = count.get(name, 0) + 1
    return found | set(_ANCHOR.findall("\n".join(outside)))


def is_external(target):
    return re.match(r"[a-zA-Z][a-zA-Z0-9+.\-]*:|//", target) is not None
