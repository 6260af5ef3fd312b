"""Kinds of arguments."""


def words(text):
    return text.split(",")


def numbers(text):
    return [int(word) for word in words(text)]


def positive(kind):
    def number(text):
        value = kind(text)
        if not value > 0:
            raise ValueError
        return value
    return number
