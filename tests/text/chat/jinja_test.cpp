// The expected texts are those of jinja2 3.1 in transformers' environment; tests/oracle/chat_check.py
// compares more.
#include <strata/text/chat.h>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata {
namespace {

using testing::HasSubstr;

/// Renders a template for one question, "Hi ".
std::string written(const std::string& jinja) {
  const ChatTemplate chat = must(ChatTemplate::parse(jinja + "{{ messages[0].content }}", {}));
  std::string text = must(apply_chat_template(chat, std::vector<ChatMessage>{{"user", "Hi "}})).text;
  EXPECT_TRUE(text.ends_with("Hi ")) << text;
  text.resize(text.size() - 3);
  return text;
}
std::string refusal(const std::string& jinja) {
  const auto chat = ChatTemplate::parse(jinja, {});
  if (!chat.has_value()) return std::string(chat.status().message());
  return std::string(
      apply_chat_template(*chat, std::vector<ChatMessage>{{"user", "Hi "}}).status().message());
}

struct Case {
  const char* jinja;
  const char* text;
};
class JinjaTest : public testing::TestWithParam<Case> {};

TEST_P(JinjaTest, WritesWhatJinja2Does) { EXPECT_EQ(written(GetParam().jinja), GetParam().text); }

INSTANTIATE_TEST_SUITE_P(
    Tags, JinjaTest,
    testing::Values(Case{"a\n{% if true %}\nb\n{% endif %}\nc", "a\nb\nc"},
                    Case{"a\n   {% if true %}b{% endif %}", "a\nb"}, Case{"  {{ 1 }}  {{- 2 }}", "  12"},
                    Case{"a {%- if true -%} \n b{% endif %}", "ab"},
                    Case{"  {%+ if true %}x{% endif %}", "  x"}, Case{"{# no #}\nx\n{#- no -#}\n y", "xy"},
                    Case{"{% raw %}{{ x }}{% endraw %}", "{{ x }}"}, Case{"a\r\nb", "a\nb"},
                    Case{"{{ 'a' 'b' }}", "ab"}, Case{"{{ 'x\\ty\\'\\u00e9' }}", "x\ty'é"}));

INSTANTIATE_TEST_SUITE_P(
    Expressions, JinjaTest,
    testing::Values(
        Case{"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 3 }}", "3 -4 2 3.5 8"},
        Case{"{{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ not 1 == 2 }}", "True False True"},
        Case{"{{ 1 ~ 'x' }} {{ 'ab' * 2 }}", "1x abab"},
        Case{"{{ 'a' in 'cat' }} {{ 4 not in [1] }}", "True True"},
        Case{"{{ 'yes' if x is defined else 'no' }}{{ 'z' if false }}", "no"},
        Case{"{{ 'abcde'[1:3] }} {{ 'abc'[::-1] }} {{ [1, 2, 3][-1] }} {{ 'é1'[0] }}", "bc cba 3 é"},
        Case{"{{ {'a': 1}.a }} {{ {'a': 1}['a'] }} {{ {'a': 1}.get('b', 2) }}", "1 1 2"},
        Case{"{{ none }} {{ [1, 'a', none] }} {{ {'k': \"it's\"} }}", "None [1, 'a', None] {'k': \"it's\"}"},
        Case{"{{ -1 | abs }}{{ 1.0 }}{{ 1e20 }}{{ 0.5 }}", "11.01e+200.5"},
        Case{"{{ x or 'd' }}{{ 0 and 1 }}", "d0"}));

INSTANTIATE_TEST_SUITE_P(
    Statements, JinjaTest,
    testing::Values(
        Case{"{% for i in range(3) %}{{ loop.index }}{{ ',' if not loop.last }}{% endfor %}", "1,2,3"},
        Case{"{% for k, v in {'a': 1}.items() %}{{ k }}={{ v }}{% endfor %}", "a=1"},
        Case{"{% for i in [] %}x{% else %}none{% endfor %}", "none"},
        Case{"{% for i in [1, 2, 3, 4] if i is odd %}{{ i }}{% endfor %}", "13"},
        Case{"{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "13"},
        Case{"{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "1"},
        Case{"{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{% endfor %}{{ x }}", "1"},
        Case{"{% set ns = namespace(x=1) %}{% for i in [1] %}{% set ns.x = 2 %}{% endfor %}{{ ns.x }}", "2"},
        Case{"{% set a, b = 1, 2 %}{{ b }}{{ a }}", "21"},
        Case{"{% set x %}<{{ 1 }}>{% endset %}{{ x | length }}", "3"},
        Case{"{% macro m(a, b='!') %}{{ a }}{{ b }}{% endmacro %}{{ m('x') }}{{ m('y', b='?') }}", "x!y?"},
        Case{"{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}in{% endcall %}", "<in>"},
        Case{"{% filter upper %}abc{% endfilter %}{% with q = 1 %}{{ q }}{% endwith %}", "ABC1"},
        Case{"{% generation %}x{% endgeneration %}", "x"}));

INSTANTIATE_TEST_SUITE_P(
    Filters, JinjaTest,
    testing::Values(
        Case{"{{ ' a\\n' | trim }}|{{ 'aXb' | lower }}|{{ 'a b' | title }}|{{ 'hELLO' | capitalize }}",
             "a|axb|A B|Hello"},
        Case{"{{ [1, 2] | join(', ') }}{{ 'abc' | replace('b', 'x') }}{{ 'é' | length }}", "1, 2axc1"},
        Case{"{{ {'a': 'é<', 'b': [1, true, none]} | tojson }}", "{\"a\": \"é<\", \"b\": [1, true, null]}"},
        Case{"{{ {'a': [1]} | tojson(indent=2) }}", "{\n  \"a\": [\n    1\n  ]\n}"},
        Case{"{{ x | default('d') }}{{ '' | default('d', true) }}{{ '' | d('e') }}", "dd"},
        Case{"{{ [{'r': 'a'}, {'r': 'b'}] | map(attribute='r') | list }}", "['a', 'b']"},
        Case{"{{ [{'r': 'a'}, {'r': 'b'}] | selectattr('r', 'equalto', 'b') | list | length }}", "1"},
        Case{"{{ none | selectattr('r') | list }}{{ none | map('upper') | list | length }}", "[]0"},
        Case{"{{ [1, 0, 2] | select | list }}{{ [3, 1] | sort }}{{ [1, 2] | reverse | list }}",
             "[1, 2][1, 3][2, 1]"},
        Case{"{{ 'a\\nb' | indent(2) }}{{ '3' | int + 1 }}{{ 'x' | int(9) }}", "a\n  b49"},
        Case{"{{ '<a>' | e }}{{ [1, 2] | first }}{{ 'ab' | last }}{{ {'k': 1} | items | list }}",
             "&lt;a&gt;1b[['k', 1]]"}));

INSTANTIATE_TEST_SUITE_P(
    Methods, JinjaTest,
    testing::Values(
        Case{"{{ ' a '.strip() }}|{{ 'xxa'.lstrip('x') }}|{{ 'a\\n'.rstrip() }}", "a|a|a"},
        Case{"{{ 'a,b,c'.split(',') }}{{ ' a  b '.split() }}{{ 'a,b,c'.rsplit(',', 1)[-1] }}",
             "['a', 'b', 'c']['a', 'b']c"},
        Case{"{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'abc'.find('c') }}",
             "TrueTrue2"},
        Case{"{{ 'a-b'.replace('-', '+').upper() }}{{ 'aXa'.count('a') }}{{ 'ab'.removeprefix('a') }}",
             "A+B2b"},
        Case{"{{ {'a': 1}.keys() | list }}{{ {'a': 1}.values() | list }}{{ ', '.join(['x', 'y']) }}",
             "['a'][1]x, y"}));

INSTANTIATE_TEST_SUITE_P(
    Closures, JinjaTest,
    testing::Values(
        Case{"{% macro w() %}[{{ caller() }}]{% endmacro %}{% for m in ['a', 'b'] %}{% call w() %}{{ m }}{% "
             "endcall %}{% endfor %}",
             "[a][b]"},
        Case{"{% for m in ['a', 'b'] %}{% macro w() %}<{{ m }}>{% endmacro %}{{ w() }}{% endfor %}",
             "<a><b>"},
        Case{"{% set x = 1 %}{% macro w() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ w() }}", "2"}));

INSTANTIATE_TEST_SUITE_P(
    Numbers, JinjaTest,
    testing::Values(
        Case{"{{ 9007199254740993 <= 9007199254740992 }} {{ 1.0 is sameas 1 }} {{ true is sameas true }}",
             "False False True"},
        Case{"{{ 7 is divisibleby(-1) }} {{ 7 is divisibleby(2) }}", "True False"},
        Case{"{{ \"it's\" | title }} {{ {'B': 1, 'a': 2} | dictsort | map('first') | join }}", "It's aB"},
        Case{"{{ [{'a': {'b': 'x'}}] | map(attribute='a.b') | join }}{{ 'x' | float(2.5) }}", "x2.5"}));

TEST(JinjaErrorTest, AnArgumentThatIsNotImplementedIsNotLeftOut) {
  for (const char* call :
       {"'aaa'.find('a', 1)", "'aXa'.startswith('X', 1)", "{'b': 1} | dictsort(by='value')",
        "'0x1F' | int(0, 16)", "[1] | tojson(separators=(',', ':'))", "' a b '.rsplit(none, 1)"})
    EXPECT_THAT(refusal(std::string("{{ ") + call + " }}"), HasSubstr("is not supported")) << call;
}

TEST(JinjaErrorTest, WhatIsNoCharacterIsRefused) {
  EXPECT_THAT(refusal("{{ '\\ud800' }}"), HasSubstr("'\\ud800' is no character"));
  EXPECT_THAT(refusal("{{ '\\UFFFFFFFF' }}"), HasSubstr("is no character"));
}

std::string repeated(const std::string& text, int n) {
  std::string out;
  while (n-- > 0) out += text;
  return out;
}

TEST(JinjaErrorTest, AChainOfOperatorsIsBounded) {
  for (const char* more : {"+1", ".a", "|trim", " or 1", " and 1", "*1", "**1", " if 1 else 1", "[0]"})
    EXPECT_THAT(refusal("{{ 1" + repeated(more, 50000) + " }}"),
                testing::AnyOf(HasSubstr("operators after each other"), HasSubstr("nested deeper")))
        << more;
}

TEST(JinjaErrorTest, BlocksInAMacroThatCallsItselfAreBounded) {
  const std::string blocks = repeated("{% for x in [1] %}", 80), ends = repeated("{% endfor %}", 80);
  EXPECT_THAT(refusal("{% macro m() %}" + blocks + "{{ m() }}" + ends + "{% endmacro %}{{ m() }}"),
              HasSubstr("nested deeper"));
}

TEST(JinjaErrorTest, AListThatIsHeldTwiceAgainAndAgainIsBounded) {
  const std::string doubled = "{% set a = ['x', 'x'] %}" + repeated("{% set a = [a, a] %}", 40);
  for (const char* use : {"{{ a }}", "{{ a == a }}", "{{ a | tojson }}", ""})
    EXPECT_THAT(refusal(doubled + use), HasSubstr("bytes and values")) << use;
}

TEST(JinjaErrorTest, MethodsOfLongTextsAreWork) {
  const std::string longer =
      "{% set ns = namespace(x='ab ') %}" + repeated("{% set ns.x = ns.x ~ ns.x %}", 18);
  EXPECT_EQ(written(longer + "{{ ns.x.split() | length }}"), "262144");
  EXPECT_THAT(refusal(longer + "{% for i in range(10000) %}{% set y = ns.x.strip() %}{% endfor %}"),
              HasSubstr("the template takes more than"));
}

TEST(JinjaErrorTest, WhatIsUndefinedIsNamed) {
  EXPECT_THAT(refusal("{{ tool.name }}"), HasSubstr("line 1: 'tool' is undefined, and so is its 'name'"));
  EXPECT_THAT(refusal("\n{{ messages[0].nothing + 'x' }}"), HasSubstr("line 2: 'nothing' is undefined"));
  EXPECT_THAT(refusal("{{ f(1) }}"), HasSubstr("'f' is undefined"));
}

TEST(JinjaErrorTest, WhatIsNotSupportedIsNamed) {
  EXPECT_THAT(refusal("{{ 1 | bogus }}"), HasSubstr("the filter 'bogus' is not supported"));
  EXPECT_THAT(refusal("{{ 1 is bogus }}"), HasSubstr("the test 'bogus' is not supported"));
  EXPECT_THAT(refusal("{% include 'x' %}"), HasSubstr("'{% include %}' is not supported"));
  EXPECT_THAT(refusal("{{ raise_exception('Roles!') }}"), HasSubstr("the template says: Roles!"));
}

TEST(JinjaErrorTest, DamagedTemplatesAreRefusedWithTheLine) {
  EXPECT_THAT(refusal("{% if x %}"), HasSubstr("'{% endif %}' is missing"));
  EXPECT_THAT(refusal("{{ 'a }}"), HasSubstr("a text has no closing quote"));
  EXPECT_THAT(refusal("{{ (1 }}"), HasSubstr("'}' stands where ')' is missing"));
  EXPECT_THAT(refusal("\n\n{% endfor %}"), HasSubstr("line 3: "));
}

TEST(JinjaErrorTest, WorkAndDepthAreBounded) {
  EXPECT_THAT(refusal("{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}"),
              HasSubstr("the template takes more than"));
  EXPECT_THAT(refusal("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), HasSubstr("nested deeper than"));
  EXPECT_THAT(refusal("{{ " + std::string(1000, '(') + "1" + std::string(1000, ')') + " }}"),
              HasSubstr("nested deeper than"));
  EXPECT_THAT(
      refusal("{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}"),
      HasSubstr("'ns.x' would be nested deeper than 64 levels"));
  EXPECT_THAT(refusal("{% set ns = namespace() %}{% set ns.x = ns %}"),
              HasSubstr("would be nested deeper than 64 levels"));
  EXPECT_THAT(refusal("{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(60) %}"
                      "{% set ns.x = ns.x | replace('a', ns.x) %}{% endfor %}"),
              HasSubstr("the template takes more than"));
}

}  // namespace
}  // namespace strata
