"""A help text as a page for man(1): what the program says of itself, then the parts that are written by hand."""
import re


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text)


def italic_values(name):
    """Options bold, their values in italics."""
    parts = []
    for word in re.split(r"( |, )", name):
        if word.startswith("-"):
            parts.append(f"\\fB{escape(word)}\\fR")
        elif word.strip(" ,"):
            parts.append(f"\\fI{escape(word)}\\fR")
        else:
            parts.append(word)
    return "".join(parts)


def synopsis_lines(forms):
    lines = []
    for form in forms:
        words = [f"\\fB{escape(word)}\\fR" if at == 0 else escape(word) for at, word in enumerate(form.split(" "))]
        lines += [" ".join(words), ".br"]
    return lines[:-1]


def section_lines(section, has_options):
    """`has_options`: the heading OPTIONS stands there already."""
    lines = []
    is_options = any(item.long for item in section.items)
    for paragraph in section.paragraphs:
        lines += [".PP", escape(paragraph)]
    if is_options and not has_options:
        lines.append(".SH OPTIONS")
    if section.heading and section.heading.lower() != "options":
        level = ".SS" if is_options else ".SH"
        words = section.heading if is_options else section.heading.upper()
        lines.append(f'{level} "{escape(words)}"')
    for item in section.items:
        name = italic_values(item.name) if item.long else f"\\fB{escape(item.name)}\\fR"
        lines += [".TP", name, escape(item.text)]
    return lines


def man_page(help_text, *, about, version, written):
    """`about`: a few words for NAME; `written`: roff that follows."""
    name = help_text.program.replace(" ", "-")
    lines = [f'.TH "{name.upper()}" 1 "" "muster {version}" "User Commands"', ".SH NAME",
             f"{escape(name)} \\- {escape(about)}", ".SH SYNOPSIS", *synopsis_lines(help_text.synopsis), ".SH DESCRIPTION"]
    has_options = False
    for section in help_text.sections:
        lines += section_lines(section, has_options)
        has_options = has_options or any(item.long for item in section.items)
    return "\n".join(lines) + "\n" + written
