#include "terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "opkit/base/platform.hpp"

namespace cli {
namespace {

bool UsesColour(std::FILE* stream) {
  const char* no_color = std::getenv("NO_COLOR");
  return IsTerminal(stream) && (!no_color || !*no_color);
}
std::string Styled(const char* style, const std::string& text, std::FILE* stream) {
  return UsesColour(stream) ? style + text + "\033[0m" : text;
}
int64_t TerminalWidth() {
  winsize size = {};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

bool IsTerminal(std::FILE* stream) {
  const char* kind = std::getenv("TERM");
  return isatty(fileno(stream)) && kind && std::strcmp(kind, "dumb") != 0;
}
std::string Red(const std::string& text, std::FILE* stream) {
  return Styled("\033[1;31m", text, stream);
}
std::string Bold(const std::string& text, std::FILE* stream) {
  return Styled("\033[1m", text, stream);
}

Progress::Progress(std::string what, int64_t total)
    : what_(std::move(what)), total_(total), shown_(IsTerminal(stderr)) {
  Update(0);
}
Progress::~Progress() {
  if (shown_) std::fputs("\r\033[K", stderr);
}
void Progress::Update(int64_t done, const std::string& note) {
  constexpr int64_t kRedrawNs = 100'000'000;
  const int64_t now_ns = opkit::detail::MonotonicNs();
  if (!shown_ || total_ <= 0 || (drawn_ns_ && now_ns - drawn_ns_ < kRedrawNs)) return;
  drawn_ns_ = now_ns;
  constexpr int64_t kWidest = 40;
  const auto text = static_cast<int64_t>(what_.size() + note.size());
  const int64_t width = std::clamp<int64_t>(TerminalWidth() - text - 16, 4, kWidest);
  const int64_t full = width * std::clamp<int64_t>(done, 0, total_) / total_;
  const std::string bar = std::string(static_cast<size_t>(full), '#') +
                          std::string(static_cast<size_t>(width - full), '.');
  std::fprintf(stderr, "\r\033[K%s [%s] %3d%% %s", what_.c_str(), bar.c_str(),
               static_cast<int>(100 * full / width), note.c_str());
  std::fflush(stderr);
}

std::string Table::Format(bool header, std::FILE* stream) const {
  std::vector<size_t> widths(alignment_.size(), 0);
  for (const auto& row : rows_)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string out;
  for (size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (size_t c = 0; c < rows_[r].size(); ++c) {
      const std::string fill(widths[c] - rows_[r][c].size(), ' ');
      line += (c ? "  " : "") + (alignment_[c] == 'l' ? rows_[r][c] + fill : fill + rows_[r][c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += (header && r == 0 ? Bold(line, stream) : line) + "\n";
  }
  return out;
}

std::string Fixed(double value, int digits) {
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, digits);
  return std::string(buffer, end.ptr);
}

}  // namespace cli
