// A JSON object, written line by line.
#ifndef OPKIT_TOOLS_OPKIT_JSON_HPP_
#define OPKIT_TOOLS_OPKIT_JSON_HPP_

#include <string>

#include "opkit/base/strings.hpp"

namespace cli {

class JsonObject {
 public:
  JsonObject& Add(const std::string& key, const std::string& value) {
    return AddRaw(key, Quote(value));
  }
  template <class T>
    requires std::is_arithmetic_v<T>
  JsonObject& Add(const std::string& key, T value) {
    return AddRaw(key, opkit::StrCat(value));
  }
  // A value that is JSON already.
  JsonObject& AddRaw(const std::string& key, const std::string& json) {
    items_.push_back(Quote(key) + ": " + json);
    return *this;
  }
  std::string OnOneLine() const { return "{" + Join(items_, ", ") + "}"; }
  std::string OnLines() const { return "{\n  " + Join(items_, ",\n  ") + "\n}\n"; }

  static std::string Array(const std::vector<std::string>& items) {
    return items.empty() ? "[]" : "[\n    " + Join(items, ",\n    ") + "\n  ]";
  }
  static std::string Quote(const std::string& text) {
    constexpr const char* kHex = "0123456789abcdef";
    std::string out = "\"";
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\')
        (out += '\\') += c;
      else if (byte < 32)
        ((out += "\\u00") += kHex[byte >> 4]) += kHex[byte & 15];
      else
        out += c;
    }
    return out + "\"";
  }

 private:
  static std::string Join(const std::vector<std::string>& items, const char* between) {
    std::string out;
    for (size_t i = 0; i < items.size(); ++i) out += (i ? between : "") + items[i];
    return out;
  }
  std::vector<std::string> items_;
};

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_JSON_HPP_
