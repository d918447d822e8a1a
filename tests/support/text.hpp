// Finds or counts a text in another, for checks of messages.
#ifndef OPKIT_TESTS_SUPPORT_TEXT_HPP_
#define OPKIT_TESTS_SUPPORT_TEXT_HPP_

#include <string_view>

inline bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}
inline int Count(std::string_view text, std::string_view part) {
  int count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

#endif  // OPKIT_TESTS_SUPPORT_TEXT_HPP_
