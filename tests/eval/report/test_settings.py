from vakforge_eval.report.settings import flat


def test_nested_settings_become_dotted_names() -> None:
    assert flat({"gpu": {"name": "L4", "memory_gb": 24.0}}) == [
        ("gpu.name", "L4"),
        ("gpu.memory_gb", "24"),
    ]


def test_plain_lists_are_one_text_and_other_lists_are_numbered() -> None:
    assert flat({"a": ["x", 1], "b": [{"c": 2}]}) == [("a", "x, 1"), ("b.1.c", "2")]


def test_nothing_is_a_dash_and_a_truth_is_a_word() -> None:
    assert flat({"a": None, "b": True, "c": False, "d": []}) == [
        ("a", "—"),
        ("b", "yes"),
        ("c", "no"),
        ("d", "—"),
    ]
