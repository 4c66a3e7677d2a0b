"""The language of texts: how much of a sample is neither English nor code.

Function words ("the", "of") tell languages of Latin script apart, the script itself the others, letters with accents
those that we have no words for. Texts without any such evidence (names, keywords, commands, code) count as readable,
and so does a language in plain ASCII that is not listed here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MOST_FOREIGN = 0.3
"""Share of a sample up to which it still counts as English or code."""

_LONGEST = 1_000  # characters of a text that are looked at
_BLOCK = 300  # characters that are judged together, so that short texts give evidence, too
_LEAST = 3  # function words before any are believed
_COVERAGE = 0.1  # share of the words that function words of a language make up in its prose, at least
_COVERAGE_IN_CODE = 0.15
_SYMBOLS_IN_CODE = 0.08  # share of what is not blank
_ACCENTED = 0.1  # share of the words
_DENSE = 3  # a Chinese or Japanese character says as much as three letters

_ENGLISH_AND_CODE = (
    "the of and to in is that it for as was with be by on not he his are this at from or have had which were "
    "but they their an we you there been has its one all would will when what who more if no out so up can "
    "into about than only other some could these two may then do first any new our over such after also most "
    "made did through between where should because each those both use used using how your she her him them my "
    "us does being while under without within did don doesn isn get just like return class def self int public "
    "private static void function func const let null true false import else select string struct"
)
_ENGLISH = frozenset(_ENGLISH_AND_CODE.split())
# Frequent words that are neither English words nor usual in code.
_FUNCTION_WORDS = {
    "German": (
        "der das und ist von den mit zu des auf für im dem nicht ein eine als auch es werden aus er hat dass sie "
        "nach wird bei einer um sind noch wie einem über einen zum haben nur oder aber vor zur bis mehr durch kann "
        "wenn ich wir ihr sein wurde sich"
    ),
    "French": (
        "le la les des et en un une du que est pour qui dans sur pas par au plus ce il sont avec ne se aux ou son "
        "sa ses cette ont mais nous vous leur elle être comme deux même aussi fait entre sans peut dont été je ces"
    ),
    "Spanish": (
        "el la los las de que y en un una por con para es del se lo al como más su sus pero este esta ya fue muy "
        "también hay cuando sin sobre ser entre desde son está dos porque todo puede donde ha han nos"
    ),
    "Italian": (
        "il lo la gli le di che un una per con del della dei delle nel nella alla sono non è si da al anche come "
        "più ma questo questa dal dalla degli essere stato ha hanno dell sul sulla cui tra ed suo sua loro quando"
    ),
    "Portuguese": (
        "os um uma de que para com não em do da dos das no na nos nas por mais como mas foi ao ele ela são se sua "
        "seu está também quando muito pelo pela até isso entre depois sem mesmo aos já ou é à pode"
    ),
    "Dutch": (
        "de het een van en dat niet met op te zijn voor er aan om ook als naar dan bij nog uit maar door deze "
        "wordt werd kan geen wel ze worden tot over dit hebben heeft heb ik je wij zich haar meer hun"
    ),
    "Swedish": (
        "och att det som en av är på till med den inte ett om han har de var jag sig men från ut så kan vid vi "
        "efter eller när där upp under sin nu mot än hade skulle mycket också denna"
    ),
    "Danish or Norwegian": (
        "og det som en av af er på til med den ikke et om han har de var jeg seg sig men fra så kan ved vi efter "
        "etter eller når der op opp sin nå nu mot mod enn end hadde havde skulle også denne blev ble"
    ),
    "Polish": (
        "się na nie jest że do jak ale przez dla od po czy ich już tak jego jej był być oraz tylko może przy które "
        "który która lub ze tym pod są było tego co gdy jako te za"
    ),
    "Czech or Slovak": (
        "se na že je to jako ale pro od po jsem aby jeho její byl být nebo jen může při které který která ve ze "
        "tím pod jsou bylo toho co když za není také už ako pre sa sú alebo aj"
    ),
    "Turkish": (
        "bir ve bu için ile olarak da de daha çok olan gibi kadar sonra her ne değil ama en var yok ise olduğu "
        "ancak tarafından mi mı ya şu ben biz"
    ),
    "Indonesian or Malay": (
        "yang dan di dengan untuk pada dari adalah ini itu dalam tidak akan juga oleh sebagai ke atau telah dapat "
        "bisa karena ada mereka kami saya anda lebih seperti tersebut sudah tahun"
    ),
    "Finnish": (
        "ja on ei se että hän oli ovat kun mutta myös joka kuin niin voi sen tai ole mukaan jos sitä hänen tämä "
        "jotka jonka sekä nyt vain olla"
    ),
    "Hungarian": (
        "az és hogy nem egy van volt meg csak mint ez de már még vagy ha el ki is azt lehet után kell amely között "
        "pedig ezt sem minden lesz"
    ),
    "Romanian": (
        "și în de la cu este pe un nu care din să pentru mai prin sau ca fost al ale au era sunt lui o după între "
        "dar despre acest această"
    ),
    "Vietnamese": ("và là của có không được cho các một trong những với này người đã để khi từ đến ở về như nhiều tôi"),
}
_POOR = frozenset(  # languages with endings where others have words: each word counts twice
    ("Polish", "Czech or Slovak", "Turkish", "Indonesian or Malay", "Finnish", "Hungarian", "Romanian", "Vietnamese")
)
_CODE_WORDS = frozenset(("do", "var", "end", "str"))


def _languages_of() -> dict[str, list[str]]:
    """Return the languages that each function word belongs to, without what is English or code as well."""
    found: dict[str, list[str]] = {}
    for language, words in _FUNCTION_WORDS.items():
        for word in words.split():
            if len(word) > 1 and word not in _ENGLISH and word not in _CODE_WORDS:
                found.setdefault(word, []).append(language)
    return found


_LANGUAGES_OF = _languages_of()
_SCRIPTS = {
    "Japanese": re.compile("[\u3040-\u30ff]"),
    "Korean": re.compile("[\uac00-\ud7af\u1100-\u11ff]"),
    "Chinese": re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"),
    "Russian or another in Cyrillic letters": re.compile("[\u0400-\u052f]"),
    "Arabic or another in Arabic letters": re.compile("[\u0600-\u06ff\u0750-\u077f]"),
    "Hebrew": re.compile("[\u0590-\u05ff]"),
    "Greek": re.compile("[\u0370-\u03ff\u1f00-\u1fff]"),
    "Hindi or another Indic language": re.compile("[\u0900-\u0dff]"),
    "Thai": re.compile("[\u0e00-\u0e7f]"),
}
_OTHER = "another"  # a language or a script without a name here
_WORD = re.compile(r"[^\W\d_]+")
_FOREIGN_LETTER = re.compile("[^\\W\\d_\u0000-\u024f\u1e00-\u1eff]")
_LATIN_LETTER = re.compile("[A-Za-z\u00c0-\u024f\u1e00-\u1eff]")
_SYMBOL = re.compile(r"[{}()\[\]<>=;:/\\|&$#@%*+_~^\"'`]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """What a sample of texts is written in.

    Attributes:
        foreign: Share that is neither English nor code, 0 to 1.
        language: Which language most of that seems to be in; "" where there is none, or it has no name here.
    """

    foreign: float
    language: str = ""

    @property
    def readable(self) -> bool:
        """Whether a model of English and code reads it."""
        return self.foreign <= MOST_FOREIGN


def judge(texts: Iterable[str]) -> Sample:
    """Estimate how much of some texts is neither English nor code; each counts the same, whatever its length.

    Args:
        texts: A sample; of each, the first 1,000 characters are looked at. Blank ones do not count.
    """
    foreign, counted = 0.0, 0
    languages: dict[str, float] = {}
    for block in _blocks(texts):
        language, share = _foreign("\n".join(block))
        counted += len(block)
        foreign += share * len(block)
        languages[language] = languages.get(language, 0.0) + share * len(block)
    if not counted:
        return Sample(foreign=0.0)
    likeliest = max(sorted(languages), key=languages.__getitem__)
    return Sample(foreign=foreign / counted, language="" if likeliest == _OTHER else likeliest)


def _blocks(texts: Iterable[str]) -> Iterable[Sequence[str]]:
    """Join neighbours until there is enough to judge."""
    block: list[str] = []
    length = 0
    for text in texts:
        start = text[:_LONGEST].strip()
        if start:
            block.append(start)
            length += len(start)
        if length >= _BLOCK:
            yield block
            block, length = [], 0
    if block:
        yield block


def _foreign(text: str) -> tuple[str, float]:
    """Say which language most of a text that is not English is in, and the share of the text, 0 to 1."""
    script, outside = ("", 0.0) if text.isascii() else _outside_latin(text)
    language, share = _latin(text)
    inside = (1 - outside) * share
    return (script if outside >= inside else language), outside + inside


def _outside_latin(text: str) -> tuple[str, float]:
    """Return the most frequent script that is not Latin, and the share of all such letters."""
    letters = "".join(_FOREIGN_LETTER.findall(text))
    if not letters:
        return "", 0.0
    counts = {name: len(script.findall(letters)) for name, script in _SCRIPTS.items()}
    weight = len(letters) + (_DENSE - 1) * (counts["Chinese"] + counts["Japanese"])
    if counts["Japanese"] * 10 > counts["Chinese"]:  # kanji are among the Chinese characters
        counts["Japanese"] += counts["Chinese"]
    script = max(counts, key=counts.__getitem__) if any(counts.values()) else _OTHER
    return script, weight / (weight + len(_LATIN_LETTER.findall(text)))


def _latin(text: str) -> tuple[str, float]:
    """Weigh the function words of the likeliest other language against the English ones."""
    words = Counter(_WORD.findall(text.lower() if text.isupper() else text))  # names begin with capital letters
    total = sum(words.values())
    if not total:
        return "", 0.0
    languages: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    english = accented = 0
    for word, count in words.items():
        if word in _ENGLISH:
            english += count
        else:
            for language in _LANGUAGES_OF.get(word, ()):
                languages[language] += 2 * count if language in _POOR else count
                kinds[language] += 1
        if not word.isascii() and _LATIN_LETTER.search(word):
            accented += count
    if accented >= _ACCENTED * total:
        languages[_OTHER], kinds[_OTHER] = accented, _LEAST
    least = max(_LEAST, total * (_COVERAGE_IN_CODE if _is_code(text) else _COVERAGE))
    evident = [language for language in languages if languages[language] >= least and kinds[language] > 1]
    if not evident:
        return "", 0.0
    # The name of a language is worth more than the mere sight of accents.
    best = max(evident, key=lambda language: (language != _OTHER, languages[language], language))
    count = max(languages[language] for language in evident)
    return best, count / (count + english)


def _is_code(text: str) -> bool:
    """Whether a text has as many symbols as code has."""
    return len(_SYMBOL.findall(text)) > _SYMBOLS_IN_CODE * len("".join(text.split()))
