import time
from collections.abc import Sequence

import pytest
from sentences import ENGLISH, OTHERS

from retrieval.language import MOST_FOREIGN, judge

UNNAMED = [
    "Gamla Bîzol šķēršlo līkumu; ūdens ceļas, bet kuģis jau aizgājis tālu prom no krasta.",
    "Vecais prāmis atstāj ostu septiņos un vakarā atgriežas līdz ar paisumu.",
]
CODE = {
    "Python": [
        "def mean(values):\n    total = 0\n    for value in values:\n        total += value\n"
        "    return total / len(values)",
        "class Stack:\n    def __init__(self):\n        self._items = []\n\n"
        "    def push(self, item):\n        self._items.append(item)",
    ],
    "C": [
        "static int cmp(const void *a, const void *b) { int x = *(int *)a, y = *(int *)b; return (x > y) - (x < y); }"
    ],
    "Java": [
        "public List<String> sorted(Map<String, Integer> counts) {\n"
        "  List<String> keys = new ArrayList<>(counts.keySet());\n"
        "  keys.sort((a, b) -> counts.get(b) - counts.get(a));\n  return keys;\n}"
    ],
    "Go": [
        "func (s *Server) Close() error {\n\tif err := s.ln.Close(); err != nil {\n\t\treturn err\n\t}\n\treturn nil\n}"
    ],
    "JavaScript": [
        "const sum = xs => xs.reduce((a, b) => a + b, 0);\n"
        "export default function avg(xs) { return sum(xs) / xs.length; }"
    ],
    "SQL": ["SELECT d.name, COUNT(*) FROM emp e JOIN dept d ON d.id = e.dept_id GROUP BY d.name ORDER BY 2 DESC;"],
    "Rust": ["pub fn first<T: Copy>(xs: &[T]) -> Option<T> { let mut it = xs.iter().copied(); it.next() }"],
    "shell": [
        "find . -name '*.log' -mtime +7 -exec rm -f {} \\;",
        "ls -la | awk '{ print $5, $9 }' | sort -n",
        "du -sh /var/* 2>/dev/null | sort -rh | head -n 5",
        "tar -xzf backup.tar.gz -C /tmp && cd /tmp/backup",
        "ps aux | grep -v grep | grep nginx | awk '{print $2}' | xargs kill",
    ],
}
PRODUCTS = [
    "Bosch GSR 12V-15 cordless drill 2x 2.0Ah",
    "USB-C charger 65W GaN",
    "Nike Air Zoom Pegasus 39 size 44",
    "Samsung 870 EVO SSD 1TB SATA",
    "De Longhi Magnifica S ECAM 22.110",
    "La Roche-Posay Anthelios SPF 50",
    "El Gato stream deck mini",
]


def readable(texts: Sequence[str]) -> bool:
    return judge(texts).readable


@pytest.mark.parametrize("texts", [ENGLISH, *([text] for text in ENGLISH), ENGLISH * 40])
def test_english_is_read(texts: list[str]) -> None:
    assert judge(texts).foreign < 0.1


@pytest.mark.parametrize("language", OTHERS)
@pytest.mark.parametrize("times", [1, 20])
def test_another_language_is_told_and_named(language: str, times: int) -> None:
    found = judge(OTHERS[language] * times)
    assert not found.readable
    assert found.foreign > 0.7
    assert language in found.language


def test_a_language_without_a_list_is_told_by_its_accents() -> None:
    found = judge(UNNAMED)
    assert not found.readable
    assert found.language == ""


def test_capitals_say_the_same() -> None:
    assert judge([text.upper() for text in ENGLISH]).foreign < 0.1
    assert judge([text.upper() for text in OTHERS["German"]]).language == "German"


@pytest.mark.parametrize("language", CODE)
@pytest.mark.parametrize("times", [1, 20])
def test_code_is_read(language: str, times: int) -> None:
    assert judge(CODE[language] * times).foreign == 0


def test_code_stays_code_with_some_comments_in_another_language() -> None:
    code = CODE["Java"][0] + "\n\n" + CODE["Go"][0] + "\n\n" + CODE["C"][0]
    commented = [f"// Liefert die Schlüssel mit der Zahl, die zu ihnen gehört.\n{code}"] * 5
    assert readable(commented)


@pytest.mark.parametrize(
    "texts",
    [
        PRODUCTS,
        ["invoice", "shipping label", "returns policy"],
        ["cheap flights paris", "weather tomorrow", "best pasta recipe"],
        ["42", "3.14", "2024-01-01", "???", "\U0001f600"],
        ["ISO 9001:2015", "RFC 4180", "DIN EN 10025-2"],
        ["Citroën", "Nestlé", "crème brûlée recipe", *PRODUCTS, *ENGLISH],
        [],
        ["", " \n\u200b"],
    ],
)
def test_what_gives_no_evidence_is_read(texts: list[str]) -> None:
    assert readable(texts)


def test_formulas_do_not_make_english_greek() -> None:
    assert readable([f"{text} Here α and β are 0.5, and Δt = μ / σ." for text in ENGLISH])


@pytest.mark.parametrize("language", ["German", "Chinese", "Russian", "Polish"])
def test_mixtures_go_by_the_share(language: str) -> None:
    few = [text for text in ENGLISH * 9 for _ in range(2)] + OTHERS[language][:2] * 5  # a tenth
    half = [text for pair in zip(ENGLISH * 6, OTHERS[language] * 10, strict=False) for text in pair]
    assert readable(few)
    assert not readable(half)
    assert judge(few).foreign < MOST_FOREIGN < judge(half).foreign


def test_half_of_each_text_in_another_script_counts_as_half() -> None:
    texts = [f"{english} {chinese}" for english, chinese in zip(ENGLISH, OTHERS["Chinese"] * 2, strict=False)]
    assert 0.3 < judge(texts).foreign < 0.6


def test_jargon_does_not_make_german_english() -> None:
    found = judge(
        [
            "Das Deployment läuft über die CI-Pipeline, der Build wird im Container gecached und als Artifact gepusht.",
            "Wenn der Load Balancer den Health Check nicht besteht, wird das Backend aus dem Pool genommen.",
            "Im Meeting haben wir das Feature priorisiert und das Backlog mit dem Product Owner aufgeräumt.",
        ]
    )
    assert not found.readable
    assert found.language == "German"


def test_quotations_do_not_make_english_german() -> None:
    assert readable([f"{text} He calls this „Gezeiten und Flut der Nordsee“." for text in ENGLISH])


def test_every_text_counts_the_same_whatever_its_length() -> None:
    assert readable([*ENGLISH * 2, " ".join(OTHERS["French"] * 200)])


def test_a_sample_takes_no_time_that_anyone_would_notice() -> None:
    texts = [(" ".join(ENGLISH) * 3)[:1_000]] * 150 + [("".join(OTHERS["Chinese"]) * 30)[:1_000]] * 50
    seconds = []
    for _ in range(5):
        start = time.process_time()
        judge(texts)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.1  # 0.02 on a quiet machine
