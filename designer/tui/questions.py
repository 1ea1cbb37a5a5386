"""Questions that wait for an answer: one key, or a name."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

STYLE = """
{name} {{ align: center middle; }}
{name} Vertical {{ width: 64; max-width: 90%; height: auto; padding: 0 1; }}
{name} Vertical {{ border: round $primary; background: $surface; }}
{name} Vertical > Static {{ margin-bottom: 1; }}
{name} Button {{ width: 100%; height: 1; border: none; text-align: left; content-align: left middle; }}
"""


class Question(ModalScreen[str]):
    """A text and answers, each with the key that gives it; escape gives the last one, which changes nothing."""

    DEFAULT_CSS = STYLE.format(name="Question")

    def __init__(self, text: str, answers: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self.text, self.answers = text, answers

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Text(self.text))
            for key, meaning in self.answers:
                yield Button(
                    Text.assemble((f" {key} ", "bold"), f" {meaning}"), id=f"answer-{key}", compact=True
                )

    def on_key(self, event: events.Key) -> None:
        keys = [key for key, _ in self.answers]
        if event.key == "escape":
            self.dismiss(keys[-1])
        elif event.key in keys:
            self.dismiss(event.key)
        elif event.key in ("up", "left"):
            self.focus_previous()
        elif event.key in ("down", "right"):
            self.focus_next()

    @on(Button.Pressed)
    def press(self, event: Button.Pressed) -> None:
        self.dismiss((event.button.id or "").removeprefix("answer-"))


YES_NO = (("y", "yes"), ("n", "no"))


class NameQuestion(ModalScreen[str | None]):
    """Asks for a file's name; None where nobody wants to say it."""

    DEFAULT_CSS = STYLE.format(name="NameQuestion")
    BINDINGS = [("escape", "dismiss(None)", "Back")]

    def __init__(self, text: str, proposal: str) -> None:
        super().__init__()
        self.text, self.proposal = text, proposal

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Text(self.text))
            yield Input(self.proposal, compact=True)

    @on(Input.Submitted)
    def submit(self, event: Input.Submitted) -> None:
        if event.value.strip():
            self.dismiss(event.value.strip())
