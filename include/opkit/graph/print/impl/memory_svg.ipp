// DrawMemoryPlan's definition: scales, axes, rectangles and the legend.
#ifndef OPKIT_GRAPH_PRINT_IMPL_MEMORY_SVG_IPP_
#define OPKIT_GRAPH_PRINT_IMPL_MEMORY_SVG_IPP_

#include <algorithm>
#include <charconv>
#include <cmath>

#include "opkit/base/error.hpp"
#include "opkit/graph/print/memory_svg.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// "1.5 MiB"
inline std::string FormatBytes(int64_t bytes) {
  const char* const kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  int unit = 0;
  auto value = static_cast<double>(bytes);
  for (; value >= 1024 && unit < 6; ++unit) value /= 1024;
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::general,
                                 value >= 1000 ? 4 : 3);
  return std::string(digits, end.ptr) + " " + kUnits[unit];
}

inline std::string EscapeXml(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) < 32)
      out += ' ';  // control characters are not XML
    else
      out += c;
  }
  return out;
}

// The distance of grid lines: of 1, 2, 5, 10, … (powers of two for bytes) the one that divides the
// span into about six.
inline double NiceStep(double span, bool bytes) {
  double step = 1;
  if (bytes) {
    while (step * 6 < span) step *= 2;
    return step;
  }
  for (int i = 0; step * 8 < span; ++i) step *= i % 3 == 1 ? 2.5 : 2;
  return step;
}

class MemorySvg {
 public:
  MemorySvg(const std::vector<MemoryInterval>& buffers, const MemoryPlan& plan,
            const MemorySvgOptions& options)
      : buffers_(buffers), plan_(plan), options_(options) {
    if (plan.offsets.size() != buffers.size())
      Throw(ErrorCode::kInvalidArgument, "expected an offset for each of ", buffers.size(),
            " buffers, found ", plan.offsets.size());
    if (!options.names.empty() && options.names.size() != buffers.size())
      Throw(ErrorCode::kInvalidArgument, "expected a name for each of ", buffers.size(),
            " buffers, or none; found ", options.names.size());
    for (const MemoryInterval& buffer : buffers) {
      if (begin_ == end_) {
        begin_ = static_cast<double>(buffer.lower);
        shortest_ = Length(buffer);
      }
      begin_ = (std::min)(begin_, static_cast<double>(buffer.lower));
      end_ = (std::max)(end_, static_cast<double>(buffer.upper));
      longest_ = (std::max)(longest_, Length(buffer));
      shortest_ = (std::min)(shortest_, Length(buffer));
    }
    if (begin_ >= end_) end_ = begin_ + 1;
    top_ = plan.arena_bytes > 0 ? static_cast<double>(plan.arena_bytes) : 1;
  }

  std::string Draw() {
    const int width = options_.width, height = options_.height;
    Add("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height);
    Add("\" viewBox=\"0 0 ", width, " ", height);
    Add("\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
        "fill=\"#fff\"/>\n");
    Add("<text x=\"", kLeft, "\" y=\"24\" font-size=\"17\" font-weight=\"bold\">");
    Add(EscapeXml(options_.title), "</text>\n");
    Add("<text x=\"", kLeft, "\" y=\"44\" fill=\"#444\">");
    Add(FormatBytes(plan_.arena_bytes), " arena, lower bound ",
        FormatBytes(plan_.lower_bound_bytes));
    Add(", ratio ", Rounded(plan_.ratio(), 4), "; ", FormatBytes(plan_.naive_bytes));
    Add(" without sharing; ", buffers_.size(), " buffers, ", EscapeXml(plan_.method));
    Add("</text>\n");
    DrawAxes();
    for (size_t i = 0; i < buffers_.size(); ++i) DrawBuffer(i);
    DrawBound();
    DrawLegend();
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
  static constexpr int kLeft = 86, kRight = 24, kTop = 62, kBottom = 52;

  void Add(const Text& a, const Text& b = {}, const Text& c = {}, const Text& d = {}) {
    out_ += StrCat(a, b, c, d);
  }
  static std::string Rounded(double value, int digits = 2) {
    char text[64];
    const auto end =
        std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, digits);
    return std::string(text, end.ptr);
  }
  static double Length(const MemoryInterval& buffer) {
    return static_cast<double>(buffer.upper) - static_cast<double>(buffer.lower);
  }
  double X(double time) const {
    return kLeft + (time - begin_) / (end_ - begin_) * (options_.width - kLeft - kRight);
  }
  double Y(double address) const {
    const int bottom = options_.height - kBottom;
    return bottom - address / top_ * (bottom - kTop);
  }
  void Line(double x1, double y1, double x2, double y2, const char* style) {
    Add("<line x1=\"", Rounded(x1), "\" y1=\"", Rounded(y1));
    Add("\" x2=\"", Rounded(x2), "\" y2=\"", Rounded(y2));
    Add("\" ", style, "/>\n");
  }
  void Label(double x, double y, const char* style, std::string_view text) {
    Add("<text x=\"", Rounded(x), "\" y=\"", Rounded(y));
    Add("\" ", style, ">", EscapeXml(text));
    Add("</text>\n");
  }

  void DrawAxes() {
    constexpr const char* kGrid = "stroke=\"#ddd\"";
    const double step = NiceStep(end_ - begin_, false);
    for (double time = step * static_cast<double>(static_cast<int64_t>(begin_ / step));
         time <= end_; time += step) {
      if (time < begin_) continue;
      Line(X(time), kTop, X(time), Y(0), kGrid);
      Label(X(time), Y(0) + 17, "text-anchor=\"middle\"", StrCat(static_cast<int64_t>(time)));
    }
    const double bytes = NiceStep(top_, true);
    for (double address = 0; address <= top_; address += bytes) {
      Line(kLeft, Y(address), X(end_), Y(address), kGrid);
      Label(kLeft - 8, Y(address) + 4, "text-anchor=\"end\"",
            FormatBytes(static_cast<int64_t>(address)));
    }
    Label((kLeft + X(end_)) / 2, options_.height - 14, "text-anchor=\"middle\"",
          options_.time_label);
    Add("<text transform=\"translate(18 ", Rounded((kTop + Y(0)) / 2), ") rotate(-90)\" ",
        "text-anchor=\"middle\">address</text>\n");
  }

  // The shortest lives are blue, the longest red, on a logarithmic scale.
  std::string Colour(double length) const {
    const double share =
        longest_ > shortest_ ? std::log(length / shortest_) / std::log(longest_ / shortest_) : 0;
    return StrCat("hsl(", static_cast<int>(215 - 205 * share), ",65%,68%)");
  }

  void DrawBuffer(size_t i) {
    const MemoryInterval& buffer = buffers_[i];
    if (buffer.size == 0) return;
    const auto lower = static_cast<double>(buffer.lower);
    const auto offset = static_cast<double>(plan_.offsets[i]);
    const double x = X(lower), width = X(static_cast<double>(buffer.upper)) - x;
    const double y = Y(offset + static_cast<double>(buffer.size)), height = Y(offset) - y;
    const std::string name = options_.names.empty() ? std::to_string(i) : options_.names[i];
    Add("<rect x=\"", Rounded(x), "\" y=\"", Rounded(y));
    Add("\" width=\"", Rounded(width), "\" height=\"", Rounded(height));
    Add("\" fill=\"", Colour(Length(buffer)), "\" stroke=\"#333\" stroke-width=\"0.5\"><title>");
    Add(EscapeXml(name), ": ", FormatBytes(buffer.size), " at ");
    Add(plan_.offsets[i], ", live from ", buffer.lower, " to ");
    Add(buffer.upper, "</title></rect>\n");
    // A label where there is room for it; 7 is a character's width.
    if (height >= 13 && width >= 7 * static_cast<double>(name.size()) + 6)
      Label(x + width / 2, y + height / 2 + 4, "text-anchor=\"middle\" pointer-events=\"none\"",
            name);
  }

  void DrawBound() {
    if (plan_.lower_bound_bytes <= 0) return;
    const double y = Y(static_cast<double>(plan_.lower_bound_bytes));
    Line(kLeft, y, X(end_), y, "stroke=\"#c00\" stroke-dasharray=\"6 4\"");
    Label(X(end_) - 4, y + 14, "text-anchor=\"end\" fill=\"#c00\"", "lower bound");
  }

  void DrawLegend() {
    const double y = options_.height - 24;
    constexpr int kSteps = 8, kWidth = 16;
    const double left = options_.width - kRight - kSteps * kWidth - 60;
    Label(left - 6, y + 10, "text-anchor=\"end\"", "lives short");
    for (int i = 0; i < kSteps; ++i) {
      const double share = static_cast<double>(i) / (kSteps - 1);
      Add("<rect x=\"", Rounded(left + i * kWidth), "\" y=\"", Rounded(y));
      Add("\" width=\"", kWidth, "\" height=\"12\" fill=\"hsl(",
          static_cast<int>(215 - 205 * share));
      out_ += ",65%,68%)\"/>\n";
    }
    Label(left + kSteps * kWidth + 6, y + 10, "", "long");
  }

  const std::vector<MemoryInterval>& buffers_;
  const MemoryPlan& plan_;
  const MemorySvgOptions& options_;
  double begin_ = 0, end_ = 0, shortest_ = 1, longest_ = 1, top_ = 1;
  std::string out_;
};

}  // namespace detail

OPKIT_INLINE std::string DrawMemoryPlan(const std::vector<MemoryInterval>& buffers,
                                        const MemoryPlan& plan, const MemorySvgOptions& options) {
  return detail::MemorySvg(buffers, plan, options).Draw();
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_PRINT_IMPL_MEMORY_SVG_IPP_
