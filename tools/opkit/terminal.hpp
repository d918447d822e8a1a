// Output for people: colours and progress bars on a terminal, and tables.
#ifndef OPKIT_TOOLS_OPKIT_TERMINAL_HPP_
#define OPKIT_TOOLS_OPKIT_TERMINAL_HPP_

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace cli {

// True for a terminal that understands escape sequences.
bool IsTerminal(std::FILE* stream);
// Returns the text, coloured if `stream` is a terminal and NO_COLOR is not set.
std::string Red(const std::string& text, std::FILE* stream);
std::string Bold(const std::string& text, std::FILE* stream);

// Shows the progress of work in a line on stderr, if that is a terminal, and removes the line at
// the end. An update is cheap: the line is drawn at most ten times a second.
class Progress {
 public:
  Progress(std::string what, int64_t total);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();
  // Shows `done` out of `total`, with `note` behind the bar.
  void Update(int64_t done, const std::string& note = {});

 private:
  std::string what_;
  int64_t total_;
  int64_t drawn_ns_ = 0;
  bool shown_;
};

// A table whose columns are as wide as their cells; numbers stand right, text left.
class Table {
 public:
  // One letter for each column: 'l' for text, 'r' for numbers.
  explicit Table(std::string alignment) : alignment_(std::move(alignment)) {}
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  // Returns the lines. If `header`, the first row is bold on a terminal.
  std::string Format(bool header, std::FILE* stream) const;

 private:
  std::string alignment_;
  std::vector<std::vector<std::string>> rows_;
};

// Returns "1234.5" with `digits` after the point, independent of the locale.
std::string Fixed(double value, int digits);

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_TERMINAL_HPP_
