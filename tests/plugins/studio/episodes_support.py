"""A run whose agents attack whoever reads it: every field that they control is hostile."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from orchestrion import (
    Activation,
    Decision,
    Episode,
    Output,
    Problem,
    Reward,
    Scores,
    Status,
    Trajectory,
    Turn,
    Usage,
)
from orchestrion._engine.recording import Facts, Recorded, cut
from orchestrion.runs import RunStore

SCRIPT = "</script><script>alert(1)</script>"
ATTACKS = [
    f"{SCRIPT}<img src=x onerror=alert(2)><svg onload=alert(3)>",
    "\"'><iframe src=javascript:alert(4)></iframe><style>*{display:none}</style>",
    "# x\n[a](javascript:alert(5)) ![b](https://example.org/b.png) <https://example.org/c>\n\n"
    "[d]: data:text/html,<script>alert(6)</script>\n\n- **<b onclick=alert(7)>**",
    "```html\n<script>alert(8)</script>\n```\n{{ 7 * 7 }}{% raw %}",
    "\u202egnp.exe\u202c\x1b[31m\x00\x07\u200b\u2028\ufeff\ud800",
    '{"a": "</pre><script>alert(9)</script>", "__proto__": {"x": 1}}',
    "data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==",
]
BIG = 10_000_000
RISKY = {"script", "iframe", "object", "embed", "img", "style", "base", "b-"}


def nested(depth: int) -> Any:
    """Lists in lists, so many."""
    value: Any = ["</pre><script>alert(10)</script>"]
    for _ in range(depth):
        value = [value]
    return value


def hostile_run(folder: Path) -> Path:
    """A run with one episode for each attack, one with a turn of 10 MB, and one nested deeply."""
    with RunStore.create(folder, "seed: 7\n", {}) as store:
        named = [f"{attack}/{number}" for number, attack in enumerate(ATTACKS)]
        for number, attack in enumerate(ATTACKS):
            attack = attack.replace("\ud800", "")  # such a request would not be sent
            messages = [{"role": attack, "content": attack, "tool_calls": [{attack: attack}]}]
            asked = {"messages": messages, attack: attack}
            made: list[tuple[str, Any, Any, str]] = [
                (f"call-{number}", asked, {"text": attack, "error": attack}, attack)
            ]
            made.append((f"tool-{number}", [attack, {attack: attack}], attack, f"tool:{attack}"))
            store.journal.put_many(
                [
                    Recorded(
                        key,
                        "digest",
                        answer,
                        Usage(1, 10, 5, usd=0.1),
                        facts=Facts(service, attack, seconds=0.1),
                        pieces=cut(question),
                    )
                    for key, question, answer, service in made
                ]
            )
        episodes = [_hostile(*each) for each in zip(named, ATTACKS, range(9), strict=False)]
        big = "<script>alert(11)</script>" + "A" * BIG
        deep = {"deep": nested(300), "code": "x = (" * 900}
        problem = Problem("plain")
        episodes += [
            Episode("big", problem, Trajectory([Turn(0, "a", output=Output(big, {"all": big}))])),
            Episode("deep", problem, Trajectory([Turn(0, "a", output=Output("[" * 5000, deep))])),
            Episode("long", problem, Trajectory([Turn(0, "a", output=Output("*a_ " * 100_000))])),
        ]
        store.save_evaluation(ATTACKS[0], {}, episodes)
    return folder


def _hostile(name: str, attack: str, number: int) -> Episode:
    calls = (f"call-{number}", f"tool-{number}")
    inner = Trajectory([Turn(0, attack, attack, Output(attack, calls=calls))])
    data = {attack: attack, "code": f"{attack}\nx = 1"}
    turns = [
        Turn(0, attack, attack, Output(attack, data, metadata={attack: attack}, calls=calls)),
        Turn(1, attack, None, Output(attack, {"code": attack}, inner=inner), reads=(0,)),
        Turn(2, attack, None, Output(), "failed", attack, decision=1),
    ]
    started = Activation(attack, attack)
    return Episode(
        name,
        Problem(name, attack, {attack: attack, "code": attack}, attack),
        Trajectory(turns),
        (
            Decision((started, started), logp=-0.5, wait="each", chances={attack: 0.5}),
            Decision((started,)),
            Decision(stop=True, error=attack),
        ),
        Status.FAILED,
        Scores(0.5, parts={attack: 1.0}, checks={attack: attack}),
        Reward(0.5, (0.1, 0.2, float(number)), {attack: 1.0}, {attack: 1.0}),
        error=attack,
        calls=calls,
    )


class Markup(HTMLParser):
    """What a page consists of: elements with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def risks(self) -> list[str]:
        """What could run or load something: scripts, handlers, styles, foreign addresses."""
        risks = []
        for tag, values in self.elements:
            is_own = tag == "script" and values.get("src", "").startswith("/static/")
            if tag in RISKY and not is_own:
                risks.append(tag)
            for name, value in values.items():
                foreign = name in ("href", "src", "action") and not value.startswith(("/", "#"))
                if name.startswith("on") or name == "style" or foreign:
                    risks.append(f"{tag} {name}={value}")
        return risks
