#include "spec/yaml_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

YamlValue Parse(const std::string& text) {
  Diagnostics diagnostics("f.yaml");
  YamlValue value = ParseYaml(text, diagnostics);
  EXPECT_TRUE(diagnostics.ok()) << diagnostics.ToStatus();
  return value;
}

std::string Refusal(const std::string& text) {
  Diagnostics diagnostics("f.yaml");
  ParseYaml(text, diagnostics);
  EXPECT_FALSE(diagnostics.ok()) << text.substr(0, 200);
  return std::string(diagnostics.ToStatus().message());
}

TEST(YamlParserTest, KeepsTheTextOfScalarsAndWhereTheyStand) {
  const YamlValue root = Parse("a: 0100\nb:\n  - no\n  - 'no'\n  - {c: 1_000}\nd:\n");
  EXPECT_EQ(root.Find("a")->text, "0100");
  EXPECT_FALSE(root.Find("a")->is_quoted);
  const YamlValue& list = *root.Find("b");
  EXPECT_EQ(list.items[0].text, "no");
  EXPECT_TRUE(list.items[1].is_quoted);
  EXPECT_EQ(list.items[2].Find("c")->text, "1_000");
  EXPECT_EQ(list.items[2].entries[0].location.line, 5);
  EXPECT_EQ(list.items[2].entries[0].location.column, 6);
  EXPECT_EQ(root.Find("d")->kind, YamlValue::Kind::kNull);
}

TEST(YamlParserTest, RefusesAKeyThatIsThereTwice) {
  EXPECT_EQ(Refusal("a: 1\nb: 2\na: 3\n"),
            "f.yaml:3:1: a: this key is here twice; the first one is on line 1");
  EXPECT_EQ(Refusal("x:\n  - {batch: 1, \"batch\": 2}\n"),
            "f.yaml:2:16: x[0].batch: this key is here twice; the first one is on line 2");
  EXPECT_THAT(Refusal("x:\n  y:\n    'k': 1\n    k: 1\n"), StartsWith("f.yaml:4:5: x.y.k: "));
  EXPECT_THAT(Refusal("base: &b {a: 1}\nx:\n  <<: *b\n  <<: *b\n"), StartsWith("f.yaml:4:3: x.<<"));
}

TEST(YamlParserTest, MergesWithTheLocalKeyWinning) {
  const YamlValue root = Parse(
      "base: &base {a: 1, b: 2}\nother: &other {b: 7, c: 8}\n"
      "x:\n  b: 3\n  <<: *base\ny:\n  <<: [*base, *other]\n");
  EXPECT_EQ(root.Find("x")->Find("a")->text, "1");
  EXPECT_EQ(root.Find("x")->Find("b")->text, "3");
  EXPECT_EQ(root.Find("x")->Find("<<"), nullptr);
  EXPECT_EQ(root.Find("y")->Find("b")->text, "2");
  EXPECT_EQ(root.Find("y")->Find("c")->text, "8");
  EXPECT_THAT(Refusal("x:\n  <<: 3\n"), StartsWith("f.yaml:2:3: x: << takes a map"));
  EXPECT_NE(Parse("\"<<\": 1\n").Find("<<"), nullptr);  // Quoted, it is a key like any other.
}

TEST(YamlParserTest, RefusesWhatIsNotOneDocument) {
  EXPECT_EQ(Refusal(""), "f.yaml:1:1: (file): the file is empty");
  EXPECT_THAT(Refusal("# only a comment\n"), HasSubstr("the file is empty"));
  EXPECT_THAT(Refusal("---\n"), HasSubstr("the file is empty"));
  EXPECT_EQ(Refusal("a: 1\n---\nb: 2\n"),
            "f.yaml:2:1: (file): a second document starts here; a file has one");
  EXPECT_THAT(Refusal("a: 1\n]\n"), StartsWith("f.yaml:2:1: "));
  EXPECT_THAT(Refusal("a: [1, 2\nb: 3\n"), StartsWith("f.yaml:"));
}

TEST(YamlParserTest, RefusesAQuoteThatIsNotClosed) {
  EXPECT_THAT(Refusal("a: 1\nb: 'open\nc: 2\n"),
              StartsWith("f.yaml:2:4: b: the quote that opens here is not closed"));
  EXPECT_THAT(Refusal("\xc3\xa9: 1\nb: \"open\\\"\n"), StartsWith("f.yaml:2:"));
  EXPECT_THAT(Refusal("b: &x !!str 'open''\n"), StartsWith("f.yaml:1:"));
  const YamlValue root =
      Parse("\xc3\xa9\xc3\xa9: 1\na: 'it''s'\nb: \"\\\"\"\nc: &x 'y'\nd: |\n  'open\n");
  EXPECT_EQ(root.Find("a")->text, "it's");
  EXPECT_EQ(root.Find("b")->text, "\"");
  EXPECT_EQ(root.Find("d")->text, "'open\n");
}

TEST(YamlParserTest, RefusesTabsAsIndentationAndControlCharacters) {
  EXPECT_EQ(Refusal("a:\n\tb: 1\n"),
            "f.yaml:2:1: (file): a tab stands in the indentation; YAML indents with spaces only");
  EXPECT_THAT(Refusal("a:\n  \tb: 1\n"), StartsWith("f.yaml:2:3: "));
  EXPECT_THAT(Refusal(std::string("a: x\0y\n", 7)), StartsWith("f.yaml:1:5: "));
  EXPECT_EQ(Parse("a:\t1\n").Find("a")->text, "1");
}

TEST(YamlParserTest, AcceptsWindowsLineEndsAndAByteOrderMark) {
  const YamlValue root = Parse(
      "\xef\xbb\xbf"
      "a: 1\r\nb:\r\n  - c\r\n");
  EXPECT_EQ(root.Find("a")->text, "1");
  EXPECT_EQ(root.Find("b")->items[0].text, "c");
  EXPECT_EQ(root.Find("b")->items[0].location.line, 3);
}

TEST(YamlParserTest, RefusesTextThatIsNotUtf8WithItsLine) {
  EXPECT_THAT(Refusal("a: 1\nb: caf\xe9\n"), StartsWith("f.yaml:2:7: (file): byte 0xe9"));
  EXPECT_EQ(Parse("b: caf\xc3\xa9\n").Find("b")->text, "caf\xc3\xa9");
  EXPECT_THAT(Refusal(std::string("\xff\xfe"
                                  "a\0:\0",
                                  6)),
              StartsWith("f.yaml:1:1: "));
}

TEST(YamlParserTest, AnswersAnAliasBombInSecondsAndBoundedMemory) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 40; ++i) {
    const std::string alias = absl::StrCat("*a", i - 1);
    absl::StrAppend(&bomb, "a", i, ": &a", i, " [", alias, ", ", alias, ", ", alias, ", ", alias,
                    ", ", alias, ", ", alias, "]\n");
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(Refusal(bomb), HasSubstr("aliases copied out"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_THAT(Refusal("a: &a [1, *a]\n"), StartsWith("f.yaml:1:11: a[1]: an alias stands inside"));
  EXPECT_THAT(Refusal("a: &a {b: {c: *a}}\n"), HasSubstr("an alias stands inside"));
  EXPECT_THAT(Refusal("a: *nobody\n"), StartsWith("f.yaml:1:4: "));
}

TEST(YamlParserTest, AnswersDeepAndHugeFilesInSeconds) {
  const auto start = std::chrono::steady_clock::now();
  for (const char* piece : {"[", "{a: ", "- ", "? ", "&a ", "!!"}) {
    std::string text;
    while (text.size() < 200'000) {
      text += piece;
    }
    Refusal(text);
  }
  std::string many_keys;
  for (int i = 0; i < 90'000; ++i) {
    absl::StrAppend(&many_keys, "k", i, ": 1\n");
  }
  EXPECT_EQ(Parse(many_keys).entries.size(), 90'000u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_THAT(Refusal(std::string(5 << 20, ' ')), HasSubstr("bytes"));
}

TEST(YamlParserTest, SaysThatBracketsAreTooManyAndNotWhatTheParserMakesOfThem) {
  EXPECT_EQ(Refusal("a: " + std::string(50'000, '[')),
            "f.yaml:1:1: (file): more than 64 levels deep");
}

TEST(YamlParserTest, RefusesTagsAndKeysThatAreNoText) {
  EXPECT_THAT(Refusal("a: !!int 5\n"), StartsWith("f.yaml:1:4: a: the tag"));
  EXPECT_THAT(Refusal("a: !secret x\n"), HasSubstr("the tag"));
  EXPECT_THAT(Refusal("[1, 2]: x\n"), HasSubstr("a key must be text"));
  EXPECT_THAT(Refusal("~: x\n"), HasSubstr("a key must be text"));
  EXPECT_TRUE(Parse("a: !!str 5\n").Find("a")->is_quoted);
}

TEST(YamlParserTest, DamagedFilesAreRefusedOrReadButNeverCrash) {
  const std::string good =
      "schema: 1\nbase: &b {a: [1, 'x', \"y\"], c: |\n  block\n}\nm:\n  <<: *b\n  k: >\n"
      "    folded text\n  - q\n";
  std::mt19937 random(7);
  const std::string bytes = "\n\t :{}[]&*!|>'\"#%@`,?-<x0\xc3\xa9~\\";
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (int edit = 0; edit < 1 + i % 5; ++edit) {
      text[random() % text.size()] = bytes[random() % bytes.size()];
    }
    Diagnostics diagnostics("f.yaml");
    ParseYaml(text, diagnostics);
  }
}

}  // namespace
}  // namespace lastflop
