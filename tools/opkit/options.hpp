// Checks of option values, with messages that say what was expected.
#ifndef OPKIT_TOOLS_OPKIT_OPTIONS_HPP_
#define OPKIT_TOOLS_OPKIT_OPTIONS_HPP_

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>

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

// Accepts a number of 0 or more.
inline CLI::Validator NotNegative() {
  const auto check = [](const std::string& text) -> std::string {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    if (is_number && value >= 0 && value <= std::numeric_limits<double>::max()) return {};
    return "expected a number of 0 or more, found '" + text + "'";
  };
  return CLI::Validator(check, "");
}

// Accepts seconds above 0, at most a million.
inline CLI::Validator Seconds() {
  const auto check = [](const std::string& text) -> std::string {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    if (is_number && value > 0 && value <= 1e6) return {};
    return "expected a number of seconds above 0, found '" + text + "'";
  };
  return CLI::Validator(check, "");
}

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_OPTIONS_HPP_
