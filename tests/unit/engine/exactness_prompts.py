"""Forty short prompts of four kinds for the exactness gate, written for this project."""

from pathlib import Path

from tokenizers import Tokenizer

_TOPICS = [
    ("rivers", "reverses a list in place", "a bicycle shop", "17 apples shared by 4 children"),
    (
        "volcanoes",
        "counts the words of a text",
        "a weather report",
        "a train that leaves at 14:35 and takes 95 minutes",
    ),
    ("bread", "finds the largest of three numbers", "a library card", "12 boxes of 24 pencils"),
    ("the moon", "checks whether a number is prime", "a shopping list", "a 15 percent tip on 48 dollars"),
    ("chess", "merges two sorted lists", "a user profile", "the area of a 7 by 9 metre room"),
    ("honey bees", "removes duplicates from a list", "a train timetable", "three consecutive numbers that sum to 72"),
    ("lighthouses", "computes the factorial of n", "a recipe", "half of a third of 90"),
    ("tea", "reads a file line by line", "a book with its authors", "a car that drives 180 km in 2.5 hours"),
    ("glaciers", "rotates a matrix by 90 degrees", "a sensor reading", "the average of 4, 8, 15, 16, 23 and 42"),
    ("music", "validates an e-mail address", "a job posting", "the change from 20 dollars after paying 13.45"),
]
_KINDS = (
    "Tell me three facts about {}.",
    "Write a Python function that {}.",
    "Return a JSON object that describes {}.",
    "Solve step by step: {}.",
)
_CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


def exactness_prompts(target: Path, count: int) -> list[list[int]]:
    """Token ids of the first `count` prompts; every four of them have all four kinds."""
    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))
    texts = [kind.format(item) for topic in _TOPICS for kind, item in zip(_KINDS, topic, strict=True)]
    return [tokenizer.encode(_CHAT.format(text)).ids for text in texts[:count]]
