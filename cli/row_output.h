#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace lastflop {

// Rows of a listing (campaigns, trials, workers) as people and scripts read them.
struct Rows {
  std::vector<std::string> names;               // Of the columns; JSON keys.
  std::vector<std::vector<std::string>> cells;  // One a column; "" is unknown: n/a or null.
  std::vector<bool> is_number;                  // Columns that JSON writes unquoted, tables right.
};

// `format` is table, json, csv or md. Text is escaped for the format.
void WriteRows(const Rows& rows, const std::string& format, std::ostream& out);

}  // namespace lastflop
