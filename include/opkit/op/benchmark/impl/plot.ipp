// ToSvg's definition: scales, axes, bars, lines and the roofline.
#ifndef OPKIT_OP_BENCHMARK_IMPL_PLOT_IPP_
#define OPKIT_OP_BENCHMARK_IMPL_PLOT_IPP_

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>

#include "opkit/base/error.hpp"
#include "opkit/base/svg/svg_writer.hpp"
#include "opkit/op/benchmark/plot.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Formats a number with three digits or four: "0.05", "12.5", "1440", "20k".
inline std::string PlotNumber(double value) {
  char text[40];
  const char* unit = "";
  if (value >= 1e4 && value < 1e16)
    for (const char* next : {"k", "M", "G", "T", "P"}) {
      if (value < 1e3) break;
      value /= 1e3, unit = next;
    }
  std::snprintf(text, sizeof text, value >= 1e3 && value < 1e4 ? "%.0f%s" : "%.3g%s", value, unit);
  return text;
}

// A time in the unit that fits it.
struct TimeUnit {
  double ns;
  const char* name;
};
inline TimeUnit UnitOf(double ns) {
  if (ns < 1e3) return {1, "ns"};
  if (ns < 1e6) return {1e3, "µs"};
  return ns < 1e9 ? TimeUnit{1e6, "ms"} : TimeUnit{1e9, "s"};
}
inline std::string TimeText(double ns) {
  const TimeUnit unit = UnitOf(ns);
  return StrCat(PlotNumber(ns / unit.ns), " ", unit.name);
}

// True for a number that a logarithmic axis can show: not 0, negative, NaN, infinite or absurd.
inline bool IsShown(double value) { return value > 1e-30 && value < 1e30; }

// Maps values to pixels, linear or logarithmic.
class PlotScale {
 public:
  PlotScale() = default;
  PlotScale(double low, double high, double from, double to, bool is_log)
      : low_(low), high_(high), from_(from), to_(to), is_log_(is_log) {}
  double At(double value) const {
    const double share =
        is_log_ ? std::log(value / low_) / std::log(high_ / low_) : (value - low_) / (high_ - low_);
    return from_ + share * (to_ - from_);
  }
  double low() const { return low_; }
  double high() const { return high_; }
  // Round values, about eight at most.
  std::vector<double> Ticks() const {
    std::vector<double> ticks;
    if (is_log_) {
      const bool dense = std::log10(high_ / low_) <= 3;
      for (double power = std::pow(10, std::floor(std::log10(low_))); power <= high_; power *= 10)
        for (const double digit : {1, 2, 5})
          if ((dense || digit == 1) && Has(power * digit)) ticks.push_back(power * digit);
      return ticks;
    }
    double step = std::pow(10, std::floor(std::log10((high_ - low_) / 8)));
    for (int i = 0; step * 8 < high_ - low_; ++i) step *= i % 3 == 1 ? 2.5 : 2;
    for (double tick = std::ceil(low_ / step) * step; Has(tick); tick += step)
      ticks.push_back(tick);
    return ticks;
  }

 private:
  bool Has(double value) const {
    const double room = 1e-9 * (high_ - low_);
    return value >= low_ - room && value <= high_ + room;
  }

  double low_ = 0, high_ = 1, from_ = 0, to_ = 1;
  bool is_log_ = false;
};

// Draws one picture.
class KernelPlot {
 public:
  OPKIT_COLD KernelPlot(std::span<const KernelComparison> comparisons,
                        const KernelPlotOptions& options)
      : comparisons_(comparisons), options_(options) {
    if (!options.places.empty() && options.places.size() != comparisons.size())
      Throw(ErrorCode::kInvalidArgument, "expected a place on the axis for each of ",
            comparisons.size(), " comparisons, or none; found ", options.places.size());
    for (const KernelComparison& comparison : comparisons)
      for (const KernelTimes& row : comparison.rows) AddLine(row);
    for (const MachineRates& rates : options.peaks)
      if (IsShown(rates.flops) && IsShown(rates.bytes) &&
          (!peak_ || rates.threads > peak_->threads))
        peak_ = &rates;
    FindPlaces();
  }

  OPKIT_COLD std::string Draw() {
    const bool bars = comparisons_.size() <= 1;
    const size_t rows = comparisons_.empty() ? 0 : comparisons_[0].rows.size();
    bottom_ =
        kTop + (bars ? (std::max)(peak_ ? 300.0 : 60.0, 30.0 * static_cast<double>(rows)) : 320.0);
    const double legend = bottom_ + 62;
    const auto lines = static_cast<double>(lines_.size());
    const double height = bars && !peak_ ? bottom_ + 50 : legend + 20 * std::ceil(lines / 2);
    width_ = peak_ ? 1100 : 620;
    svg_.emplace(width_, static_cast<int>(height));
    const std::string title = !options_.title.empty() ? options_.title
                              : comparisons_.empty()  ? "Times of kernels"
                                                      : comparisons_[0].name;
    svg_->CutLabel(kLeft, 24, "font-size=\"17\" font-weight=\"bold\"", title, peak_ ? 100 : 54);
    svg_->Label(kLeft, 44, "fill=\"#444\"",
                "median time of a run with its 95 % interval; less is better");
    if (bars)
      DrawBars();
    else
      DrawLines();
    if (peak_) DrawRoofline();
    if (!bars || peak_) DrawLegend(legend);
    return std::move(*svg_).Finish();
  }

 private:
  // A kernel and a number of threads, which the comparisons may have.
  struct LineOfKernel {
    const KernelTimes* row;
    size_t color, dash;
  };
  static constexpr double kLeft = 70, kTop = 62, kRight = 556, kRoofLeft = 660, kRoofRight = 1076;
  static constexpr const char* kColors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                            "#8c6d00", "#56b4e9", "#333333", "#a50026"};
  static constexpr const char* kDashes[] = {"", " stroke-dasharray=\"6 4\"",
                                            " stroke-dasharray=\"2 3\"",
                                            " stroke-dasharray=\"8 3 2 3\""};

  static bool HasTimes(const KernelTimes& row) {
    return row.refused.empty() && IsShown(row.times.median);
  }
  static bool IsSameKernel(const KernelTimes& a, const KernelTimes& b) {
    return a.backend == b.backend && a.layouts == b.layouts;
  }
  static std::string NameOf(const KernelTimes& row) {
    return StrCat(row.backend, ", ", row.threads, row.threads == 1 ? " thread" : " threads",
                  row.layouts.empty() ? "" : StrCat(", ", row.layouts));
  }
  // A tooltip: "eigen, 2 threads: 12.5 µs (12.1 to 13), 34 GFLOP/s, 71 % of L2".
  static std::string FactsOf(const KernelTimes& row) {
    std::string out = StrCat(NameOf(row), ": ", TimeText(row.times.median), " (",
                             TimeText(row.times.low), " to ", TimeText(row.times.high), ")");
    if (IsShown(row.flops))
      out += StrCat(", ", PlotNumber(row.flops / row.times.median), " GFLOP/s");
    if (IsShown(row.bytes)) out += StrCat(", ", PlotNumber(row.bytes / row.times.median), " GB/s");
    if (row.of_peak.share > 0) out += StrCat(", ", ToString(row.of_peak));
    return out;
  }

  // A kernel has one color; the first number of threads has a solid line, the next ones dashes.
  void AddLine(const KernelTimes& row) {
    if (!HasTimes(row)) return;
    size_t color = 0, dash = 0;
    for (const LineOfKernel& line : lines_) {
      if (IsSameKernel(*line.row, row)) {
        if (line.row->threads == row.threads) return;
        color = line.color, dash = (std::max)(dash, line.dash + 1);
      } else if (dash == 0) {
        color = (std::max)(color, line.color + 1);
      }
    }
    lines_.push_back({&row, color, dash});
  }
  const LineOfKernel& LineOf(const KernelTimes& row) const {
    for (const LineOfKernel& line : lines_)
      if (IsSameKernel(*line.row, row) && line.row->threads == row.threads) return line;
    return lines_[0];
  }
  static const char* ColorOf(const LineOfKernel& line) {
    return kColors[line.color % std::size(kColors)];
  }
  static const char* DashOf(const LineOfKernel& line) {
    return kDashes[line.dash % std::size(kDashes)];
  }

  void FindPlaces() {
    bool are_numbers = !options_.places.empty();
    for (const std::string& place : options_.places) {
      double number = 0;
      const char* const end = place.data() + place.size();
      const auto read = std::from_chars(place.data(), end, number);
      are_numbers &= read.ec == std::errc() && read.ptr == end && IsShown(number) &&
                     std::ranges::count(places_, number) == 0;
      places_.push_back(number);
    }
    if (are_numbers) return;
    places_.clear();
    for (size_t i = 0; i < comparisons_.size(); ++i) places_.push_back(static_cast<double>(i + 1));
  }
  std::string PlaceText(size_t i) const {
    return options_.places.empty() ? StrCat(i + 1) : options_.places[i];
  }

  OPKIT_COLD void DrawBars() {
    constexpr double kBarLeft = 230, kRow = 30, kWidest = kRight - 110;
    double longest = 0;
    const std::vector<KernelTimes> none;
    const auto& rows = comparisons_.empty() ? none : comparisons_[0].rows;
    for (const KernelTimes& row : rows)
      if (HasTimes(row)) longest = (std::max)({longest, row.times.median, row.times.high});
    const TimeUnit unit = UnitOf(longest);
    const PlotScale x(0, longest > 0 ? longest / unit.ns : 1, kBarLeft, kWidest, false);
    for (const double tick : x.Ticks()) {
      svg_->Line(x.At(tick), kTop, x.At(tick), bottom_, kGrid);
      svg_->Label(x.At(tick), bottom_ + 17, "text-anchor=\"middle\"", PlotNumber(tick));
    }
    svg_->Label((kBarLeft + kWidest) / 2, bottom_ + 36, "text-anchor=\"middle\"", unit.name);
    for (size_t i = 0; i < rows.size(); ++i) {
      const KernelTimes& row = rows[i];
      const double y = kTop + kRow * static_cast<double>(i), middle = y + kRow / 2;
      svg_->CutLabel(kBarLeft - 8, middle + 4, "text-anchor=\"end\"", NameOf(row), 28);
      if (!HasTimes(row)) {
        svg_->CutLabel(kBarLeft + 6, middle + 4, StrCat("fill=\"#666\" ", kHalo),
                       row.refused.empty() ? "no time" : row.refused, 48);
        continue;
      }
      const double end = x.At(row.times.median / unit.ns);
      svg_->Add(
          "<rect x=\"@\" y=\"@\" width=\"@\" height=\"@\" fill=\"@\"><title>@</title>"
          "</rect>\n",
          {kBarLeft, SvgWriter::Rounded(y + 5), SvgWriter::Rounded(end - kBarLeft), kRow - 10,
           ColorOf(LineOf(row)), EscapeXml(FactsOf(row))});
      const double low = x.At(row.times.low / unit.ns), high = x.At(row.times.high / unit.ns);
      svg_->Line(low, middle, high, middle, kWhisker);
      for (const double edge : {low, high})
        svg_->Line(edge, middle - 4, edge, middle + 4, kWhisker);
      svg_->Label((std::max)(end, high) + 6, middle + 4, kHalo,
                  StrCat(TimeText(row.times.median), VerdictOf(row)));
    }
  }
  static std::string VerdictOf(const KernelTimes& row) {
    using Verdict = KernelTimes::Verdict;
    if (row.verdict == Verdict::kFaster) return StrCat(", ", PlotNumber(row.speedup), "x faster");
    if (row.verdict == Verdict::kSlower)
      return StrCat(", ", PlotNumber(1 / row.speedup), "x slower");
    return row.verdict == Verdict::kSame ? ", same" : "";
  }

  // The smallest and the largest of some values above 0.
  struct Range {
    double low = std::numeric_limits<double>::infinity(), high = 0;
    void Add(double value) {
      if (!IsShown(value)) return;
      low = (std::min)(low, value), high = (std::max)(high, value);
    }
  };

  OPKIT_COLD void DrawLines() {
    Range places, times;
    for (const double place : places_) places.Add(place);
    for (const KernelComparison& comparison : comparisons_)
      for (const KernelTimes& row : comparison.rows)
        if (HasTimes(row)) times.Add(row.times.median), times.Add(row.times.high);
    if (times.high == 0) times = {1, 1};
    const TimeUnit unit = UnitOf(times.high);
    const bool log_x = places.high > 8 * places.low, log_y = times.high > 8 * times.low;
    const double margin = log_x ? 1 : (places.high - places.low) * 0.02;
    const PlotScale x(places.low - (log_x ? 0 : margin), places.high + (log_x ? 0 : margin),
                      kLeft + 6, kRight - 6, log_x);
    const PlotScale y(log_y ? times.low / unit.ns / 1.2 : 0, times.high / unit.ns * 1.1, bottom_,
                      kTop, log_y);
    for (const double tick : y.Ticks()) {
      svg_->Line(kLeft, y.At(tick), kRight, y.At(tick), kGrid);
      svg_->Label(kLeft - 8, y.At(tick) + 4, "text-anchor=\"end\"",
                  log_y ? TimeText(tick * unit.ns) : PlotNumber(tick));
    }
    if (!log_y)  // else each tick has its unit
      svg_->Add("<text transform=\"translate(18 @) rotate(-90)\" text-anchor=\"middle\">@</text>\n",
                {SvgWriter::Rounded((kTop + bottom_) / 2), unit.name});
    // The places, in order, without those whose text has no room.
    std::vector<size_t> order;
    for (size_t i = 0; i < places_.size(); ++i) order.push_back(i);
    std::ranges::sort(order, {}, [&](size_t i) { return places_[i]; });
    double free_from = 0;
    for (const size_t i : order) {
      const double at = x.At(places_[i]);
      svg_->Line(at, kTop, at, bottom_, kGrid);
      const double half = 3.5 * static_cast<double>(PlaceText(i).size()) + 3;
      if (at - half < free_from) continue;
      svg_->Label(at, bottom_ + 17, "text-anchor=\"middle\"", PlaceText(i));
      free_from = at + half;
    }
    svg_->CutLabel((kLeft + kRight) / 2, bottom_ + 36, "text-anchor=\"middle\"", options_.axis, 60);
    for (const LineOfKernel& line : lines_) DrawLine(line, order, x, y, unit);
  }
  OPKIT_COLD void DrawLine(const LineOfKernel& line, const std::vector<size_t>& order,
                           const PlotScale& x, const PlotScale& y, const TimeUnit& unit) {
    std::string points, marks;
    for (const size_t i : order)
      for (const KernelTimes& row : comparisons_[i].rows) {
        if (!HasTimes(row) || !IsSameKernel(row, *line.row) || row.threads != line.row->threads)
          continue;
        const double at = x.At(places_[i]), middle = y.At(row.times.median / unit.ns);
        points += StrCat(points.empty() ? "" : " ", SvgWriter::Rounded(at), ",",
                         SvgWriter::Rounded(middle));
        const double low = (std::max)(row.times.low / unit.ns, y.low());
        svg_->Line(at, y.At(low), at, y.At(row.times.high / unit.ns),
                   StrCat("stroke=\"", ColorOf(line), "\" stroke-width=\"5\" opacity=\"0.35\""));
        marks +=
            StrCat("<circle cx=\"", SvgWriter::Rounded(at), "\" cy=\"", SvgWriter::Rounded(middle),
                   "\" r=\"3\" fill=\"", ColorOf(line), "\"><title>",
                   EscapeXml(StrCat(options_.axis, options_.axis.empty() ? "" : " = ", PlaceText(i),
                                    ": ", FactsOf(row))),
                   "</title></circle>\n");
      }
    svg_->Add("<polyline points=\"@\" fill=\"none\" stroke=\"@\" stroke-width=\"2\"@/>\n@",
              {points, ColorOf(line), DashOf(line), marks});
  }

  OPKIT_COLD void DrawRoofline() {
    std::vector<std::pair<const KernelTimes*, size_t>> points;  // with the comparison's place
    Range across, up;
    for (size_t i = 0; i < comparisons_.size(); ++i)
      for (const KernelTimes& row : comparisons_[i].rows) {
        if (!HasTimes(row) || !IsShown(row.flops) || !IsShown(row.bytes)) continue;
        points.push_back({&row, i});
        across.Add(row.flops / row.bytes);
        up.Add(row.flops / row.times.median);
      }
    std::vector<CacheCeiling> levels = peak_->caches;
    levels.push_back({"memory", 0, peak_->bytes});
    std::erase_if(levels,
                  [](const CacheCeiling& level) { return !IsShown(level.bytes_per_second); });
    for (const CacheCeiling& level : levels) across.Add(peak_->flops / level.bytes_per_second);
    up.Add(peak_->flops * 1e-9);
    const PlotScale x(across.low / 8, across.high * 8, kRoofLeft, kRoofRight, true);
    up.Add(x.low() * peak_->bytes * 1e-9);  // memory's ceiling at the left edge
    const PlotScale y(up.low / 2, up.high * 2, bottom_, kTop, true);
    for (const double tick : x.Ticks()) {
      svg_->Line(x.At(tick), kTop, x.At(tick), bottom_, kGrid);
      svg_->Label(x.At(tick), bottom_ + 17, "text-anchor=\"middle\"", PlotNumber(tick));
    }
    for (const double tick : y.Ticks()) {
      svg_->Line(kRoofLeft, y.At(tick), kRoofRight, y.At(tick), kGrid);
      svg_->Label(kRoofLeft - 8, y.At(tick) + 4, "text-anchor=\"end\"", PlotNumber(tick));
    }
    svg_->Label((kRoofLeft + kRoofRight) / 2, bottom_ + 36, "text-anchor=\"middle\"",
                "operations for each byte");
    svg_->Add(
        "<text transform=\"translate(@ @) rotate(-90)\" text-anchor=\"middle\">GFLOP/s"
        "</text>\n",
        {kRoofLeft - 48, SvgWriter::Rounded((kTop + bottom_) / 2)});
    svg_->Label(kRoofLeft, 44, "fill=\"#444\"",
                StrCat("roofline, with the ceilings of ", peak_->threads,
                       peak_->threads == 1 ? " thread" : " threads"));
    DrawCeilings(levels, x, y);
    for (const auto& [row, i] : points) {
      const LineOfKernel& line = LineOf(*row);
      // The first number of threads is filled.
      const std::string fill = line.dash == 0 ? ColorOf(line) : "#fff";
      const std::string place =
          comparisons_.size() > 1 ? StrCat(options_.axis, " ", PlaceText(i), ": ") : "";
      svg_->Add(
          "<circle cx=\"@\" cy=\"@\" r=\"4.5\" fill=\"@\" stroke=\"@\" stroke-width=\"2\">"
          "<title>@</title></circle>\n",
          {SvgWriter::Rounded(x.At(row->flops / row->bytes)),
           SvgWriter::Rounded(y.At(row->flops / row->times.median)), fill, ColorOf(line),
           EscapeXml(place + FactsOf(*row))});
    }
  }
  OPKIT_COLD void DrawCeilings(const std::vector<CacheCeiling>& levels, const PlotScale& x,
                               const PlotScale& y) {
    const double roof = peak_->flops * 1e-9, top = y.At(roof);
    double first_ridge = x.high();
    size_t texts = 0;
    std::string text;  // of levels whose lines are too near to each other for a text between them
    for (size_t i = 0; i < levels.size(); ++i) {
      const double rate = levels[i].bytes_per_second * 1e-9, ridge = roof / rate;
      first_ridge = (std::min)(first_ridge, ridge);
      const double from = (std::max)(x.low(), y.low() / rate);
      const double x1 = x.At(from), y1 = y.At(from * rate), x2 = x.At(ridge);
      const double angle = std::atan2(y1 - top, x2 - x1);
      svg_->Line(x1, y1, x2, top, kCeiling);
      text += StrCat(text.empty() ? "" : ", ", levels[i].name, " ", PlotNumber(rate));
      const auto gap = [&](size_t other) {
        return std::abs(y.At(levels[other].bytes_per_second * 1e-9) - y.At(rate)) * std::cos(angle);
      };
      if (i + 1 < levels.size() && gap(i + 1) < 14) continue;
      // The text lies below the line; texts of neighbours begin at different places. A character is
      // about 7 pixels wide.
      text += " GB/s";
      const double room = std::hypot(y1 - top, x2 - x1) - 7 * static_cast<double>(text.size()) - 8;
      const double along = (std::max)(8.0, (std::min)(texts++ % 2 == 0 ? 8.0 : 128.0, room));
      svg_->Add("<text transform=\"translate(@ @) rotate(@)\" font-size=\"11\" @>@</text>\n",
                {SvgWriter::Rounded(x1 + along * std::cos(angle) + 12 * std::sin(angle)),
                 SvgWriter::Rounded(y1 - along * std::sin(angle) + 12 * std::cos(angle)),
                 SvgWriter::Rounded(-angle * 180 / 3.14159265358979), kHalo, EscapeXml(text)});
      text.clear();
    }
    svg_->Line(x.At(first_ridge), top, kRoofRight, top, kCeiling);
    svg_->Label(kRoofRight, top - 10, StrCat("text-anchor=\"end\" font-size=\"11\" ", kHalo),
                StrCat("FMA ", PlotNumber(roof), " GFLOP/s"));
  }

  // Names the lines in two columns.
  OPKIT_COLD void DrawLegend(double top) {
    const double column = (width_ - kLeft) / 2;
    for (size_t i = 0; i < lines_.size(); ++i) {
      const LineOfKernel& line = lines_[i];
      const double x = kLeft + column * static_cast<double>(i % 2);
      const double y = top + 20 * static_cast<double>(i / 2);
      svg_->Line(x, y, x + 30, y,
                 StrCat("stroke=\"", ColorOf(line), "\" stroke-width=\"2\"", DashOf(line)));
      svg_->Add("<circle cx=\"@\" cy=\"@\" r=\"4\" fill=\"@\" stroke=\"@\" stroke-width=\"2\"/>\n",
                {SvgWriter::Rounded(x + 15), SvgWriter::Rounded(y),
                 line.dash == 0 ? ColorOf(line) : "#fff", ColorOf(line)});
      svg_->CutLabel(x + 38, y + 4, "", NameOf(*line.row), peak_ ? 64 : 32);
    }
  }

  static constexpr const char* kGrid = "stroke=\"#ddd\"";
  static constexpr const char* kWhisker = "stroke=\"#222\" stroke-width=\"1.5\"";
  static constexpr const char* kCeiling = "stroke=\"#555\" stroke-width=\"1.5\"";
  // A white edge around letters, for texts on lines.
  static constexpr const char* kHalo = "stroke=\"#fff\" stroke-width=\"3\" paint-order=\"stroke\"";

  std::span<const KernelComparison> comparisons_;
  const KernelPlotOptions& options_;
  std::vector<LineOfKernel> lines_;
  const MachineRates* peak_ = nullptr;
  std::vector<double> places_;  // by comparison
  double bottom_ = 0;           // of the panels
  int width_ = 0;
  std::optional<SvgWriter> svg_;
};

}  // namespace detail

OPKIT_COLD OPKIT_INLINE std::string ToSvg(std::span<const KernelComparison> comparisons,
                                          const KernelPlotOptions& options) {
  return detail::KernelPlot(comparisons, options).Draw();
}

}}  // namespace opkit

#endif  // OPKIT_OP_BENCHMARK_IMPL_PLOT_IPP_
