// Checks and reads option values, with messages that say what was expected.
#ifndef OPKIT_TOOLS_OPKIT_OPTIONS_HPP_
#define OPKIT_TOOLS_OPKIT_OPTIONS_HPP_

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "program.hpp"

namespace cli {

// Accepts a whole number in [lowest, highest] without leading zeros, which CLI11 would convert as
// an octal number.
inline CLI::Validator WholeNumber(int64_t lowest,
                                  int64_t highest = std::numeric_limits<int64_t>::max()) {
  const auto check = [=](const std::string& text) -> std::string {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    if (is_number && value >= lowest && value <= highest) {
      if (std::to_string(value) == text) return {};
      return "expected a whole number without leading zeros, found '" + text + "'";
    }
    const bool open = highest == std::numeric_limits<int64_t>::max();
    return "expected a whole number from " + std::to_string(lowest) +
           (open ? " up" : " to " + std::to_string(highest)) + ", found '" + text + "'";
  };
  return CLI::Validator(check, "");
}

// Accepts a number from `lowest` to `highest`. `allowed`: accepts `lowest` itself, too.
inline CLI::Validator Number(double lowest, bool allowed, double highest,
                             const std::string& expected) {
  const auto check = [=](const std::string& text) -> std::string {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    if (is_number && (allowed ? value >= lowest : value > lowest) && value <= highest) return {};
    return "expected a number " + expected + ", found '" + text + "'";
  };
  return CLI::Validator(check, "");
}
inline CLI::Validator NotNegative() {
  return Number(0, true, std::numeric_limits<double>::max(), "of 0 or more");
}
// Accepts each text but "-", for a file that cannot be written to standard output.
inline CLI::Validator FileName() {
  const auto check = [](const std::string& text) -> std::string {
    return text == "-" ? "expected the name of a file, found '-'" : "";
  };
  return CLI::Validator(check, "");
}
// Accepts at most a million seconds.
inline CLI::Validator Seconds() { return Number(0, false, 1e6, "of seconds above 0"); }

// Splits the value NAME=VALUE of an option. Throws a Failure for another text.
inline std::pair<std::string, std::string> SplitSetting(const char* option,
                                                        const std::string& text) {
  const size_t at = text.find('=');
  if (at == std::string::npos || at == 0)
    throw Failure(ExitCode::kUsage,
                  std::string("expected ") + option + " NAME=VALUE, found '" + text + "'");
  return {text.substr(0, at), text.substr(at + 1)};
}

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_OPTIONS_HPP_
