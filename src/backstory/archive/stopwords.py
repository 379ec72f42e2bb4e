"""Words that say nothing about what a text is about, by language."""

from __future__ import annotations

from collections.abc import Iterable

STOP_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": """
            a about after again all also am an and any are as at be because been before being between
            both but by can could did do does doing done down each few for from further get got had has
            have having he her here hers him his how i if in into is it its just let like me more most
            my need no nor not now of off on once only or other our out over own please same she should
            so some such than that the their them then there these they this those through to too under
            until up us use used using very want was way we were what when where which while who whom
            why will with would you your
        """,
        "de": """
            aber alle als also am an auch auf aus bei bin bis bist da damit dann das dass dem den der
            des die dies diese dieser dieses doch durch ein eine einem einen einer eines er es euch für
            gab habe haben hat hatte hatten hier ich ihr im in ist ja kann kein keine man mein mit muss
            nach nicht noch nun nur ob oder ohne sehr sein seine sich sie sind so soll um und uns unser
            unter vom von vor war waren warum was weil welche wenn wer werden wie wieso wir wird wo
            wurde zu zum zur über
        """,
        "fr": """
            ai au aux avait avec avons c ce cela ces cette comme comment d dans de des donc du elle en
            est et était eu fait il ils j je l la le les leur lui ma mais me mes mon n ne nos notre nous
            on ont ou où par pas plus pour pourquoi qu quand que quel quelle qui s sa se ses si son sont
            sur ta te tes toi ton tu un une vos votre vous y
        """,
        "es": """
            al algo como con cuando cuál cómo de del desde donde dónde el ella en era eran es esa ese
            eso esta este esto fue ha había han hay hemos hizo la las le les lo los me mi muy más nos
            nuestro o para pero por porque qué que quien se ser si sin sobre son su sus también te tiene
            todo tu un una uno y ya yo
        """,
        "it": """
            abbiamo ai al alla anche che chi ci come con cosa da dal dalla degli dei del della delle di
            dove e era erano essere gli ha hanno ho il in io la le lo ma mi ne nei nel nella noi non o
            per perché più quale quando quello questa questo se si sia sono su sul sulla tra tu un una
            uno è
        """,
        "pt": """
            ao aos as até com como da das de dela dele do dos e ela ele em entre era essa esse esta este
            eu foi há isso já mais mas me meu minha muito na nas no nos nossa nosso não nós o onde os ou
            para pela pelo por porque qual quando que quem se sem ser seu sua são também tem um uma você
            é
        """,
        "nl": """
            aan al alles als bij daar dan dat de der deze die dit door een en er had heb hebben heeft
            het hier hij hoe hun ik in is je kan maar me mijn moet na naar niet nog nu of om omdat onder
            ons ook op over te toen tot uit van veel voor waarom waren was wat we wel werd wie wij zal
            ze zich zij zijn zo zonder zou
        """,
        "sv": """
            alla att av blev bli de dem den denna det detta din dig du där efter eller en ett från för
            ha hade han har hon hur här i icke inte jag kan man med men mig min mot mycket nu när någon
            och om oss på så sin skulle som till under upp ut vad var varför vi vid vilken är över
        """,
        "ru": """
            а без бы был была были было в вам вас во вот все всё вы где да для до его ее если есть ещё
            же за и из или им их к как какой когда кто ли мне мы на над не него нет но ну о об он она
            они от по почему при с со так такой там то того тоже только у уже что чтобы это этот я
        """,
    }.items()
}

_ALL = frozenset[str]().union(*STOP_WORDS.values())
_LANGUAGE_CHARS = 400


def stop_words(text: str) -> frozenset[str]:
    """Those of English and of the language of a text."""
    return STOP_WORDS["en"] | STOP_WORDS[language_of(text)]


def language_of(text: str) -> str:
    """The language of a text by its commonest words; English where they say nothing."""
    return language_of_words(text[:_LANGUAGE_CHARS].lower().replace("'", " ").split())


def language_of_words(given: Iterable[str]) -> str:
    """The same by the words at its beginning, in lower case."""
    words = _ALL.intersection(given)
    if words <= STOP_WORDS["en"]:  # no other language has more of them
        return "en"
    return next(iter(languages_of_words(words)))


def languages_of_words(given: Iterable[str]) -> list[str]:
    """The languages that words in lower case may be of, those with most of the commonest words: all of them where none
    has any."""
    words = _ALL.intersection(given)
    counts = {language: len(words & stops) for language, stops in STOP_WORDS.items()}
    most = max(counts.values())
    return [language for language, count in counts.items() if count == most]
