"""The commonest words. Two of them next to each other have a posting, as a word has, so that a phrase of such words is
looked for in the few events that have it, not in the many that have its words.

A posting has the numbers of the two words. New words come at the end, with a migration that makes all pairs anew. They
are words of prose and of code; each script without spaces has a few of its characters.
"""

from __future__ import annotations

from collections.abc import Sequence

from .server import array

COMMON = tuple(
    """
    the of and to in a is that for it as was with be by on not he i this are or his from at which but have an had they
    you were there one all we can her has been if more when will would who so no she other its may these what them
    than some him time into only do such my new about out also two any up first could our then most me should after
    your now where how each many before must through because being did very here same does both down over use used
    using need make just like get let see want don t s ll re ve im still back well way without between again while
    part against file files line lines code test tests error errors function class method def self return returns
    import const true false none null int str string list dict key value name type data object array path src id user
    config server client request response message event session token output input result results command run running
    build version index query table column row branch commit main add added remove change changes update check fix
    issue call called set read write open start end last next old number text json py ts js md http https com app lib
    docs log info warn debug module package project work works case point size 0 1 2 3 4 5 6 7 8 9 10 100 else elif
    try except raise async await var export default public private static void struct impl fn pub mut err nil func x n
    e p r der die das und ist nicht ein eine zu den von mit auf ich sie es dem des wir de la le les et un une est que
    dans pour en du pas je il sur el los las y por con una para se lo al o os da em um uma nao di che per non sono het
    van een dat niet voor op och att det som ar pa и в не на что я с он как это к по но из за у от же для 的 了 是 在
    不 一 我 有 个 这 他 中 们 来 到 の に は を た が で て と し れ さ る す い な 이 다 는 을 에 의 가 고 하
    """.split()
)
_NUMBERS = {word: number for number, word in enumerate(COMMON, 1)}
_BASE = 1 << 12
PAIRS_END = _BASE * _BASE
"""The terms of pairs are below, and those of words, hashes of 64 bits, next to never."""


def cover(phrase: Sequence[str]) -> tuple[str, ...]:
    """The tokens that all events with a phrase have: the pairs of common words in it, and its other words. A pair is
    a token with a space, which no word has."""
    is_common = [word in _NUMBERS for word in phrase] + [False]
    tokens = []
    for place, word in enumerate(phrase):
        if is_common[place] and is_common[place - 1]:
            tokens.append(f"{phrase[place - 1]} {word}")
        elif not (is_common[place] and is_common[place + 1]):
            tokens.append(word)
    return tuple(tokens)


def term_of_pair(token: str) -> int:
    """The term that postings have for a pair, 0 for a word."""
    first, separator, second = token.partition(" ")
    return _NUMBERS[first] * _BASE + _NUMBERS[second] if separator else 0


def pairs(terms: str) -> str:
    """The terms of the pairs in the words of a document, as SQL. `terms` are the hashes of the words in their order."""
    hashes = f"arrayMap(word -> toUInt32(cityHash64(word)), {array(_NUMBERS, 'String')})"
    numbers = f"CAST(range(1, {len(_NUMBERS) + 1}), 'Array(UInt16)')"
    common = f"arrayMap(term -> transform(toUInt32(term), {hashes}, {numbers}, toUInt16(0)), {terms})"
    pair = f"(toUInt64(first) * {_BASE} + second) * (first <> 0 AND second <> 0)"
    return (
        f"arrayFilter(pair -> pair <> 0, arrayMap((first, second) -> {pair}, {common} AS common, "
        "arrayPopFront(arrayPushBack(common, toUInt16(0)))))"
    )
