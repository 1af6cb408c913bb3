#include "cli/row_output.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/one_line.h"
#include "report/format.h"

namespace lastflop {
namespace {

// What a table shows of a cell, on one line.
std::string Shown(const std::string& cell) { return cell.empty() ? kNotAvailable : OneLine(cell); }

// Columns of a terminal that UTF-8 text takes, one a code point.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  }));
}

void WriteTable(const Rows& rows, std::ostream& out) {
  std::vector<size_t> widths;
  for (size_t column = 0; column < rows.names.size(); ++column) {
    size_t width = Width(rows.names[column]);
    for (const std::vector<std::string>& row : rows.cells) {
      width = std::max(width, Width(Shown(row[column])));
    }
    widths.push_back(width);
  }
  const auto write_row = [&](const std::vector<std::string>& row) {
    std::string line;
    for (size_t column = 0; column < row.size(); ++column) {
      const std::string cell = Shown(row[column]);
      const std::string padding(widths[column] - Width(cell), ' ');
      absl::StrAppend(
          &line, column > 0 ? "  " : "",
          rows.is_number[column] ? absl::StrCat(padding, cell) : absl::StrCat(cell, padding));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << "\n";
  };
  write_row(rows.names);
  for (const std::vector<std::string>& row : rows.cells) {
    write_row(row);
  }
}

void WriteJson(const Rows& rows, std::ostream& out) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const std::vector<std::string>& row : rows.cells) {
    nlohmann::ordered_json entry = nlohmann::ordered_json::object();
    for (size_t column = 0; column < row.size(); ++column) {
      if (row[column].empty()) {
        entry[rows.names[column]] = nullptr;
      } else if (rows.is_number[column]) {
        entry[rows.names[column]] =
            nlohmann::ordered_json::parse(row[column], /*cb=*/nullptr, /*allow_exceptions=*/false);
      } else {
        entry[rows.names[column]] = row[column];
      }
    }
    list.push_back(std::move(entry));
  }
  out << list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
}

void WriteCsv(const Rows& rows, std::ostream& out) {
  const auto write_row = [&](const std::vector<std::string>& row) {
    out << absl::StrJoin(row, ",", [](std::string* text, const std::string& cell) {
      text->append(CsvField(cell));
    }) << "\r\n";
  };
  write_row(rows.names);
  for (const std::vector<std::string>& row : rows.cells) {
    write_row(row);
  }
}

void WriteMarkdown(const Rows& rows, std::ostream& out) {
  const auto write_row = [&](const std::vector<std::string>& row) {
    out << "|";
    for (const std::string& cell : row) {
      out << " " << EscapeMarkdown(Shown(cell)) << " |";
    }
    out << "\n";
  };
  write_row(rows.names);
  out << "|";
  for (const bool is_number : rows.is_number) {
    out << (is_number ? " --: |" : " --- |");
  }
  out << "\n";
  for (const std::vector<std::string>& row : rows.cells) {
    write_row(row);
  }
}

}  // namespace

void WriteRows(const Rows& rows, const std::string& format, std::ostream& out) {
  if (format == "json") {
    WriteJson(rows, out);
  } else if (format == "csv") {
    WriteCsv(rows, out);
  } else if (format == "md") {
    WriteMarkdown(rows, out);
  } else {
    WriteTable(rows, out);
  }
}

}  // namespace lastflop
