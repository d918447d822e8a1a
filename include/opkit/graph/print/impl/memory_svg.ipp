// ToSvg's definition: scales, axes, rectangles and the legend.
#ifndef OPKIT_GRAPH_PRINT_IMPL_MEMORY_SVG_IPP_
#define OPKIT_GRAPH_PRINT_IMPL_MEMORY_SVG_IPP_

#include <algorithm>
#include <charconv>
#include <cmath>

#include "opkit/base/error.hpp"
#include "opkit/base/svg/svg_writer.hpp"
#include "opkit/graph/print/memory_svg.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Writes one picture.
class MemorySvg {
 public:
  OPKIT_COLD MemorySvg(const std::vector<MemoryInterval>& buffers, const MemoryPlan& plan,
                       const MemorySvgOptions& options)
      : buffers_(buffers), plan_(plan), options_(options), svg_(options.width, options.height) {
    if (plan.offsets.size() != buffers.size())
      Throw(ErrorCode::kInvalidArgument, "expected an offset for each of ", buffers.size(),
            " buffers, found ", plan.offsets.size());
    if (!options.names.empty() && options.names.size() != buffers.size())
      Throw(ErrorCode::kInvalidArgument, "expected a name for each of ", buffers.size(),
            " buffers, or none; found ", options.names.size());
    if (!buffers.empty()) shortest_ = Length(buffers[0]);
    if (!buffers.empty()) begin_ = static_cast<double>(buffers[0].lower);
    for (const MemoryInterval& buffer : buffers) {
      begin_ = (std::min)(begin_, static_cast<double>(buffer.lower));
      end_ = (std::max)(end_, static_cast<double>(buffer.upper));
      longest_ = (std::max)(longest_, Length(buffer));
      shortest_ = (std::min)(shortest_, Length(buffer));
    }
    if (begin_ >= end_) end_ = begin_ + 1;
    top_ = plan.arena_bytes > 0 ? static_cast<double>(plan.arena_bytes) : 1;
  }

  OPKIT_COLD std::string Draw() {
    svg_.Add("<text x=\"@\" y=\"24\" font-size=\"17\" font-weight=\"bold\">@</text>\n",
             {kLeft, EscapeXml(options_.title)});
    svg_.Add(
        "<text x=\"@\" y=\"44\" fill=\"#444\">@ arena, lower bound @, ratio @; @ without sharing; "
        "@ buffers, @</text>\n",
        {kLeft, FormatBytes(plan_.arena_bytes), FormatBytes(plan_.lower_bound_bytes),
         SvgWriter::Rounded(plan_.ratio(), 4), FormatBytes(plan_.naive_bytes), buffers_.size(),
         EscapeXml(plan_.method)});
    DrawAxes();
    for (size_t i = 0; i < buffers_.size(); ++i) DrawBuffer(i);
    DrawBound();
    DrawLegend();
    return std::move(svg_).Finish();
  }

 private:
  static constexpr int kLeft = 86, kRight = 24, kTop = 62, kBottom = 52;

  // Returns a text such as "1.5 MiB".
  OPKIT_COLD static std::string FormatBytes(int64_t bytes) {
    const char* const kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    int unit = 0;
    auto value = static_cast<double>(bytes);
    for (; value >= 1024 && unit < 6; ++unit) value /= 1024;
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, value,
                                   std::chars_format::general, value >= 1000 ? 4 : 3);
    return std::string(digits, end.ptr) + " " + kUnits[unit];
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

  // Draws grid lines that are 1, 2, 5, 10, … steps of time apart (about eight at most), and lines
  // that are a power of two of bytes apart (about six at most).
  OPKIT_COLD void DrawAxes() {
    constexpr const char* kGrid = "stroke=\"#ddd\"";
    double step = 1, bytes = 1;
    for (int i = 0; step * 8 < end_ - begin_; ++i) step *= i % 3 == 1 ? 2.5 : 2;
    while (bytes * 6 < top_) bytes *= 2;
    for (double time = step * std::trunc(begin_ / step); time <= end_; time += step) {
      if (time < begin_) continue;
      svg_.Line(X(time), kTop, X(time), Y(0), kGrid);
      svg_.Label(X(time), Y(0) + 17, "text-anchor=\"middle\"", StrCat(static_cast<int64_t>(time)));
    }
    for (double address = 0; address <= top_; address += bytes) {
      svg_.Line(kLeft, Y(address), X(end_), Y(address), kGrid);
      svg_.Label(kLeft - 8, Y(address) + 4, "text-anchor=\"end\"",
                 FormatBytes(static_cast<int64_t>(address)));
    }
    svg_.Label((kLeft + X(end_)) / 2, options_.height - 14, "text-anchor=\"middle\"",
               options_.time_label);
    svg_.Add(
        "<text transform=\"translate(18 @) rotate(-90)\" text-anchor=\"middle\">address</text>\n",
        {SvgWriter::Rounded((kTop + Y(0)) / 2)});
  }

  // Returns a colour from blue (0) to red (1).
  static std::string Colour(double share) {
    return StrCat("hsl(", static_cast<int>(215 - 205 * share), ",65%,68%)");
  }

  OPKIT_COLD void DrawBuffer(size_t i) {
    const MemoryInterval& buffer = buffers_[i];
    if (buffer.size == 0) return;
    const auto lower = static_cast<double>(buffer.lower);
    const auto offset = static_cast<double>(plan_.offsets[i]);
    const double x = X(lower), width = X(static_cast<double>(buffer.upper)) - x;
    const double y = Y(offset + static_cast<double>(buffer.size)), height = Y(offset) - y;
    const double life = std::log(Length(buffer) / shortest_);  // colours have a logarithmic scale
    const std::string name = options_.names.empty() ? std::to_string(i) : options_.names[i];
    svg_.Add(
        "<rect x=\"@\" y=\"@\" width=\"@\" height=\"@\" fill=\"@\" stroke=\"#333\" "
        "stroke-width=\"0.5\"><title>@: @ at @, live from @ to @</title></rect>\n",
        {SvgWriter::Rounded(x), SvgWriter::Rounded(y), SvgWriter::Rounded(width),
         SvgWriter::Rounded(height),
         Colour(longest_ > shortest_ ? life / std::log(longest_ / shortest_) : 0), EscapeXml(name),
         FormatBytes(buffer.size), plan_.offsets[i], buffer.lower, buffer.upper});
    // Draw a label if there is room for it; a character is about 7 pixels wide.
    if (height >= 13 && width >= 7 * static_cast<double>(name.size()) + 6)
      svg_.Label(x + width / 2, y + height / 2 + 4,
                 "text-anchor=\"middle\" pointer-events=\"none\"", name);
  }

  void DrawBound() {
    if (plan_.lower_bound_bytes <= 0) return;
    const double y = Y(static_cast<double>(plan_.lower_bound_bytes));
    svg_.Line(kLeft, y, X(end_), y, "stroke=\"#c00\" stroke-dasharray=\"6 4\"");
    svg_.Label(X(end_) - 4, y + 14, "text-anchor=\"end\" fill=\"#c00\"", "lower bound");
  }

  OPKIT_COLD void DrawLegend() {
    const double y = options_.height - 24;
    constexpr int kSteps = 8, kWidth = 16;
    const double left = options_.width - kRight - kSteps * kWidth - 60;
    svg_.Label(left - 6, y + 10, "text-anchor=\"end\"", "lives short");
    for (int i = 0; i < kSteps; ++i)
      svg_.Add("<rect x=\"@\" y=\"@\" width=\"@\" height=\"12\" fill=\"@\"/>\n",
               {SvgWriter::Rounded(left + i * kWidth), SvgWriter::Rounded(y), kWidth,
                Colour(static_cast<double>(i) / (kSteps - 1))});
    svg_.Label(left + kSteps * kWidth + 6, y + 10, "", "long");
  }

  const std::vector<MemoryInterval>& buffers_;
  const MemoryPlan& plan_;
  const MemorySvgOptions& options_;
  double begin_ = 0, end_ = 0, shortest_ = 1, longest_ = 1, top_ = 1;
  SvgWriter svg_;
};

}  // namespace detail

OPKIT_INLINE std::string ToSvg(const std::vector<MemoryInterval>& buffers, const MemoryPlan& plan,
                               const MemorySvgOptions& options) {
  return detail::MemorySvg(buffers, plan, options).Draw();
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PRINT_IMPL_MEMORY_SVG_IPP_
