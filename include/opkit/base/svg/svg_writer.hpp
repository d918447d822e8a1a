// SvgWriter: appends an SVG document to a string. The toolkit's pictures are drawn with it, so that
// they look alike, and every name in them is escaped.
#ifndef OPKIT_BASE_SVG_SVG_WRITER_HPP_
#define OPKIT_BASE_SVG_SVG_WRITER_HPP_

#include <initializer_list>
#include <string>
#include <string_view>

#include "opkit/base/strings.hpp"
#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns `text` for an element or an attribute in double quotes: &, <, > and " are escaped,
// control characters become spaces, and bytes that are not UTF-8 become U+FFFD.
std::string EscapeXml(std::string_view text);

class SvgWriter {
 public:
  // Begins a document of this many pixels, on white, so that it can be read on a page of any
  // colour.
  SvgWriter(int width, int height);

  // Appends `form` and replaces each '@' in it by the next part.
  void Add(std::string_view form, std::initializer_list<Text> parts);
  void Line(double x1, double y1, double x2, double y2, std::string_view attributes);
  // Appends a text, which is escaped.
  void Label(double x, double y, std::string_view attributes, std::string_view text);
  // Appends a label that ends with "…" if it is longer than `most` characters. A tooltip has the
  // whole text then.
  void CutLabel(double x, double y, std::string_view attributes, std::string_view text,
                size_t most);
  // Formats a coordinate.
  static std::string Rounded(double value, int digits = 2);

  std::string Finish() &&;

 private:
  std::string out_;
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/svg/impl/svg_writer.ipp"
#endif

#endif  // OPKIT_BASE_SVG_SVG_WRITER_HPP_
