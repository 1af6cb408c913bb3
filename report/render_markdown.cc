#include <string>

#include "absl/strings/str_cat.h"
#include "report/document.h"
#include "report/format.h"
#include "report/render.h"

namespace lastflop {
namespace {

void AppendTable(const Table& table, std::string& out) {
  out += "|";
  for (const Column& column : table.columns) {
    absl::StrAppend(&out, " ", EscapeMarkdown(column.title), " |");
  }
  out += "\n|";
  for (const Column& column : table.columns) {
    out += column.right ? " ---: |" : " --- |";
  }
  out += "\n";
  for (const std::vector<Cell>& row : table.rows) {
    out += "|";
    for (const Cell& cell : row) {
      const std::string text = EscapeMarkdown(cell.text);
      absl::StrAppend(
          &out, " ",
          cell.tone == Tone::kGood && !text.empty() ? absl::StrCat("**", text, "**") : text, " |");
    }
    out += "\n";
  }
}

}  // namespace

std::string RenderMarkdown(const Ranking& ranking) {
  const Document document = MakeDocument(ranking);
  std::string out = absl::StrCat("# ", EscapeMarkdown(document.title), "\n");
  if (!document.question.empty()) {
    absl::StrAppend(&out, "\n", EscapeMarkdown(document.question), "\n");
  }
  absl::StrAppend(&out, "\n**", EscapeMarkdown(document.answer), "**\n");
  for (const Section& section : document.sections) {
    absl::StrAppend(&out, "\n## ", EscapeMarkdown(section.title), "\n");
    if (!section.note.empty()) {
      absl::StrAppend(&out, "\n", EscapeMarkdown(section.note), "\n");
    }
    if (!section.table.columns.empty() && !section.table.rows.empty()) {
      out += "\n";
      AppendTable(section.table, out);
    }
    if (!section.items.empty()) {
      out += "\n";
    }
    for (const std::string& item : section.items) {
      absl::StrAppend(&out, "- ", EscapeMarkdown(item), "\n");
    }
  }
  return out;
}

}  // namespace lastflop
