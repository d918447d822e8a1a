// The definitions of opkit/base/strings.hpp.
#ifndef OPKIT_BASE_IMPL_STRINGS_IPP_
#define OPKIT_BASE_IMPL_STRINGS_IPP_

#include "opkit/base/strings.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

OPKIT_INLINE void Text::AppendTo(std::string& out) const {
  switch (kind_) {
    case Kind::kLiteral:
      out += value_.object ? static_cast<const char*>(value_.object) : "(null)";
      break;
    case Kind::kChars:
      out.append(static_cast<const char*>(value_.object), size_);
      break;
    case Kind::kCharacter:
      out += static_cast<char>(value_.integer);
      break;
    case Kind::kInt:
      out += std::to_string(value_.integer);
      break;
    case Kind::kUInt:
      out += std::to_string(static_cast<uint64_t>(value_.integer));
      break;
    case Kind::kFloat: {
      char buffer[32];  // whatever the program's locale says
      out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value_.number,
                                       std::chars_format::general, 9)
                             .ptr);
      break;
    }
    case Kind::kObject:
      append_(out, value_.object);
      break;
  }
}

OPKIT_INLINE std::string Join(std::initializer_list<const Text*> parts) {
  std::string out;
  for (const Text* part : parts) part->AppendTo(out);
  return out;
}

}  // namespace detail

OPKIT_INLINE std::string StrCat(const detail::Text& a, const detail::Text& b, const detail::Text& c,
                                const detail::Text& d) {
  return detail::Join({&a, &b, &c, &d});
}

OPKIT_INLINE std::string StrCat(const detail::Text& a, const detail::Text& b, const detail::Text& c,
                                const detail::Text& d, const detail::Text& e, const detail::Text& f,
                                const detail::Text& g, const detail::Text& h) {
  return detail::Join({&a, &b, &c, &d, &e, &f, &g, &h});
}

OPKIT_INLINE std::string StrCat(const detail::Text& a, const detail::Text& b, const detail::Text& c,
                                const detail::Text& d, const detail::Text& e, const detail::Text& f,
                                const detail::Text& g, const detail::Text& h, const detail::Text& i,
                                const detail::Text& j, const detail::Text& k, const detail::Text& l,
                                const detail::Text& m, const detail::Text& n, const detail::Text& o,
                                const detail::Text& p) {
  return detail::Join({&a, &b, &c, &d, &e, &f, &g, &h, &i, &j, &k, &l, &m, &n, &o, &p});
}

}  // namespace opkit

#endif  // OPKIT_BASE_IMPL_STRINGS_IPP_
