// Names and numbers on which writers of text often fail: invalid UTF-8, control characters, NaN.
#ifndef OPKIT_TESTS_SUPPORT_AWKWARD_HPP_
#define OPKIT_TESTS_SUPPORT_AWKWARD_HPP_

#include <limits>
#include <string>
#include <vector>

struct AwkwardName {
  std::string bytes, utf8;  // `utf8` has U+FFFD for each invalid byte
};
inline std::vector<AwkwardName> AwkwardNames() {
  const std::string bad = "\xEF\xBF\xBD";
  std::vector<AwkwardName> names = {
      {"\xff", bad},
      {"cut \xe2\x82", "cut " + bad + bad},
      {"\xc0\x80 too long", bad + bad + " too long"},
      {"\xed\xa0\x80 surrogate", bad + bad + bad + " surrogate"},
      {"\xf4\x90\x80\x80 too large", bad + bad + bad + bad + " too large"}};
  std::string controls;
  for (char control = 0; control < 0x20; ++control) controls += control;
  for (const std::string& same :
       {std::string("plain"), std::string(), std::string(" "), controls, std::string(1, '\0'),
        std::string("a\0b", 3), std::string("\x7f"), std::string("\"quoted\\\""),
        std::string("</script><!--"), std::string("]]>&amp;<b>"), std::string("%s %n {} ::"),
        std::string("\xf0\x9f\x98\x80"), std::string("\xe2\x80\xa8 \xef\xbb\xbf"),
        std::string(10'000, 'x')})
    names.push_back({same, same});
  return names;
}

inline std::vector<double> AwkwardNumbers() {
  using Limits = std::numeric_limits<double>;
  return {0,
          -0.0,
          1,
          -1.5,
          0.1,
          1e21,
          Limits::max(),
          -Limits::max(),
          Limits::min(),
          Limits::denorm_min(),
          -Limits::denorm_min(),
          9007199254740993.0,
          Limits::infinity(),
          -Limits::infinity(),
          Limits::quiet_NaN()};
}

#endif  // OPKIT_TESTS_SUPPORT_AWKWARD_HPP_
