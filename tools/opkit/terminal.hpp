// What goes to a person: colours where there is a terminal, progress bars for long work, tables.
#ifndef OPKIT_TOOLS_OPKIT_TERMINAL_HPP_
#define OPKIT_TOOLS_OPKIT_TERMINAL_HPP_

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace cli {

// A terminal that understands escape sequences.
bool IsTerminal(std::FILE* stream);
// The text, coloured where `stream` is a terminal and NO_COLOR is not set.
std::string Red(const std::string& text, std::FILE* stream);
std::string Bold(const std::string& text, std::FILE* stream);

// A line on stderr, where that is a terminal, that shows how far work has come, and is gone when
// the work is done. Updates cost nothing that matters: it is drawn ten times a second.
class Progress {
 public:
  Progress(std::string what, int64_t total);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();
  // `done` out of `total`, with `note` behind the bar.
  void Update(int64_t done, const std::string& note = {});

 private:
  std::string what_;
  int64_t total_;
  int64_t drawn_ns_ = 0;
  bool shown_;
};

// Cells in columns as wide as they need; numbers to the right, text to the left.
class Table {
 public:
  // One letter for each column: 'l' for text, 'r' for numbers.
  explicit Table(std::string alignment) : alignment_(std::move(alignment)) {}
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  // The first row, where `header`, is bold on a terminal.
  std::string Format(bool header, std::FILE* stream) const;

 private:
  std::string alignment_;
  std::vector<std::vector<std::string>> rows_;
};

// 1234.5 with `digits` behind the point, whatever the locale says.
std::string Fixed(double value, int digits);

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_TERMINAL_HPP_
