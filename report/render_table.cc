#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/one_line.h"
#include "report/document.h"
#include "report/format.h"
#include "report/render.h"

namespace lastflop {
namespace {

constexpr int kLeastWidth = 40;
constexpr size_t kGap = 2;              // Blanks between columns.
constexpr size_t kLeastTextWidth = 16;  // What a last column of text is wrapped to, at least.

// Columns that UTF-8 text takes, one per code point.
size_t Width(absl::string_view text) {
  size_t width = 0;
  for (const char c : text) {
    width += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
  }
  return width;
}

const char* ColorOf(Tone tone) {
  switch (tone) {
    case Tone::kGood:
      return "\x1b[32m";
    case Tone::kBad:
      return "\x1b[31m";
    case Tone::kUnsure:
      return "\x1b[33m";
    case Tone::kMuted:
      return "\x1b[2m";
    case Tone::kStrong:
      return "\x1b[1m";
    case Tone::kPlain:
      return "";
  }
  return "";
}

// Words of `text` in lines of at most `width`; a longer word has a line of its own.
std::vector<std::string> Wrap(const std::string& text, size_t width) {
  std::vector<std::string> lines = {""};
  for (const absl::string_view word : absl::StrSplit(OneLine(text), ' ', absl::SkipEmpty())) {
    if (!lines.back().empty() && Width(lines.back()) + 1 + Width(word) > width) {
      lines.emplace_back();
    }
    absl::StrAppend(&lines.back(), lines.back().empty() ? "" : " ", word);
  }
  return lines;
}

// A table laid out for a width: which columns are shown and how wide they are.
class Layout {
 public:
  Layout(const Table& table, size_t width) : table_(table) {
    for (size_t i = 0; i < table.columns.size(); ++i) {
      shown_.push_back(i);
      size_t widest = Width(table.columns[i].title);
      for (const std::vector<Cell>& row : table.rows) {
        widest = std::max(widest, Width(OneLine(row[i].text)));
      }
      widths_.push_back(widest);
    }
    while (Total() > width && DropLeastImportant()) {
    }
    WrapLast(width);
  }

  const std::vector<size_t>& shown() const { return shown_; }
  size_t width(size_t column) const { return widths_[column]; }
  std::vector<std::string> DroppedTitles() const { return dropped_; }

 private:
  size_t Total() const {
    size_t total = 0;
    for (const size_t column : shown_) {
      total += widths_[column] + kGap;
    }
    return total == 0 ? 0 : total - kGap;
  }

  bool DropLeastImportant() {
    const auto least = std::max_element(shown_.begin(), shown_.end(), [this](size_t a, size_t b) {
      return table_.columns[a].importance < table_.columns[b].importance;
    });
    if (least == shown_.end() || table_.columns[*least].importance == 0) {
      return false;
    }
    dropped_.push_back(table_.columns[*least].title);
    shown_.erase(least);
    return true;
  }

  void WrapLast(size_t width) {
    const size_t total = Total();
    if (total <= width || shown_.empty() || table_.columns[shown_.back()].right) {
      return;
    }
    size_t& last = widths_[shown_.back()];
    const size_t others = total - last;
    last = width > others + kLeastTextWidth ? width - others : std::min(last, kLeastTextWidth);
  }

  const Table& table_;  // Outlives this.
  std::vector<size_t> shown_;
  std::vector<size_t> widths_;
  std::vector<std::string> dropped_;
};

// Writes the parts of the report for a terminal.
class Writer {
 public:
  Writer(bool color, int width)
      : color_(color), width_(static_cast<size_t>(std::max(width, kLeastWidth))) {}

  void Paragraph(const std::string& text, Tone tone) {
    for (const std::string& line : Wrap(text, width_)) {
      absl::StrAppend(&out_, Paint(line, tone), "\n");
    }
  }

  void Heading(const std::string& title) {
    absl::StrAppend(&out_, "\n", Paint(title, Tone::kStrong), "\n");
  }

  void Item(const std::string& text) {
    const char* mark = "- ";
    for (const std::string& line : Wrap(text, width_ - 2)) {
      absl::StrAppend(&out_, mark, line, "\n");
      mark = "  ";
    }
  }

  void WriteTable(const Table& table) {
    const Layout layout(table, width_);
    std::vector<Cell> titles;
    for (const Column& column : table.columns) {
      titles.push_back({column.title, Tone::kMuted});
    }
    Row(table, layout, titles);
    for (const std::vector<Cell>& row : table.rows) {
      Row(table, layout, row);
    }
    if (!layout.DroppedTitles().empty()) {
      Paragraph(absl::StrCat(
                    "Not shown at this width: ", absl::StrJoin(layout.DroppedTitles(), ", "), "."),
                Tone::kMuted);
    }
  }

  std::string Take() { return std::move(out_); }

 private:
  std::string Paint(const std::string& text, Tone tone) const {
    const char* const color = color_ ? ColorOf(tone) : "";
    return *color == '\0' || text.empty() ? text : absl::StrCat(color, text, "\x1b[0m");
  }

  // One row; the last column may take several lines.
  void Row(const Table& table, const Layout& layout, const std::vector<Cell>& cells) {
    const size_t last = layout.shown().back();
    const std::vector<std::string> lines = table.columns[last].right
                                               ? std::vector<std::string>{OneLine(cells[last].text)}
                                               : Wrap(cells[last].text, layout.width(last));
    for (size_t i = 0; i < lines.size(); ++i) {
      std::string line;
      for (const size_t column : layout.shown()) {
        const bool is_last = column == last;
        const std::string text =
            is_last ? lines[i] : (i == 0 ? OneLine(cells[column].text) : std::string());
        const size_t used = Width(text);
        const std::string blanks(layout.width(column) - std::min(layout.width(column), used), ' ');
        const std::string painted = Paint(text, cells[column].tone);
        absl::StrAppend(&line, table.columns[column].right ? blanks : "", painted,
                        table.columns[column].right || is_last ? "" : blanks,
                        is_last ? "" : std::string(kGap, ' '));
      }
      line.erase(line.find_last_not_of(' ') + 1);
      absl::StrAppend(&out_, line, "\n");
    }
  }

  const bool color_;
  const size_t width_;
  std::string out_;
};

}  // namespace

std::string RenderTable(const Ranking& ranking, bool color, int width) {
  const Document document = MakeDocument(ranking);
  Writer writer(color, width);
  writer.Paragraph(document.title, Tone::kStrong);
  if (!document.question.empty()) {
    writer.Paragraph(document.question, Tone::kPlain);
  }
  writer.Paragraph(document.answer, Tone::kGood);
  for (const Section& section : document.sections) {
    writer.Heading(section.title);
    if (!section.note.empty()) {
      writer.Paragraph(section.note, Tone::kMuted);
    }
    if (!section.table.columns.empty() && !section.table.rows.empty()) {
      writer.WriteTable(section.table);
    }
    for (const std::string& item : section.items) {
      writer.Item(item);
    }
  }
  return writer.Take();
}

}  // namespace lastflop
