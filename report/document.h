#pragma once

#include <string>
#include <vector>

#include "planner/ranking.h"

// The report as sections of text and tables: what the renderers for people share. Texts are raw;
// every renderer escapes them for its own form.
namespace lastflop {

enum class Tone { kPlain, kGood, kBad, kUnsure, kMuted, kStrong };

struct Cell {
  std::string text;
  Tone tone = Tone::kPlain;
  std::string detail;  // A second, smaller line where the form has room for one.
};

struct Column {
  std::string title;
  bool right = false;  // Numbers.
  // A narrow terminal drops columns of the largest importance number first; 0 always stays.
  int importance = 0;
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
};

struct Section {
  std::string id;     // "ranking": charts and links find it.
  std::string title;  // "" for the head.
  std::string note;   // One line under the title.
  Table table;        // Without columns: none.
  std::vector<std::string> items;
};

struct Document {
  std::string title;
  std::string question;
  std::string answer;
  std::vector<Section> sections;
};

// All sections of DESIGN section 8, in its order. A section without content says so.
Document MakeDocument(const Ranking& ranking);

}  // namespace lastflop
