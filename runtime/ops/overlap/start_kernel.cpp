#include "overlap/start_kernel.hpp"

#include "overlap/transfers.hpp"
#include "progress.hpp"

namespace tensoropt {
namespace {

class FlightOnThread final : public Flight {
 public:
  FlightOnThread(const void* owner, std::string kind, std::vector<const void*> reads,
                 std::shared_ptr<Transfer> transfer)
      : Flight(owner, std::move(kind), std::move(reads)), transfer_(std::move(transfer)) {}

  void join(void*) override { transfers().wait(*transfer_); }
  void end() override { transfers().wait_for_end(*transfer_); }

 private:
  std::shared_ptr<Transfer> transfer_;
};

class FlightOnStream final : public Flight {
 public:
  FlightOnStream(const void* owner, std::string kind, std::vector<const void*> reads,
                 const StreamEvent& done, std::unique_ptr<NcclTransport> transport)
      : Flight(owner, std::move(kind), std::move(reads)), done_(done),
        transport_(std::move(transport)) {}

  void join(void* stream) override { done_.hold(stream); }
  void end() override { side_stream().finish(); }

 private:
  const StreamEvent& done_;
  std::unique_ptr<NcclTransport> transport_;  // its scratch is in use until the end
};

void run_pieces(const std::vector<Piece>& pieces, const ElementInfo& element,
                Transport& transport) {
  const auto& first = pieces.front();
  if (pieces.size() > 1) run_combined(pieces, element, transport);
  else run(first.node, element, first.shape, first.x, first.y, transport);
}

}  // namespace

StartKernel::~StartKernel() { flights().forget(this); }

void StartKernel::compute(OrtKernelContext* context) {
  located(node_, [&] { go(context); });
}

void StartKernel::go(OrtKernelContext* context) {
  const auto& element = this->element(context);
  auto all = pieces(context, element);
  if (!form_.combined && all.size() != 1)
    throw Error("expected one x, got: " + std::to_string(all.size()));
  void* handle = api_.output(context, 1, {1});
  flights().check_none(handle, this);
  set_outputs(context, all);
  pass_token(context, 0, 0);
  copy(context, api_.data(api_.input(context, 0)), handle, sizeof(std::int64_t));
  if (is_in_place()) {
    for (auto& piece : all) {
      copy(context, piece.x, piece.y, count_of(piece.shape) * element.bytes);
      piece.x = piece.y;
    }
  }
  flights().add(handle, started(context, element, std::move(all)));
}

void StartKernel::set_outputs(OrtKernelContext* context, std::vector<Piece>& pieces) const {
  for (std::size_t i = 0; i < pieces.size(); ++i)
    pieces[i].y = api_.output(context, i + 2, pieces[i].node.output_shape(pieces[i].shape));
}

std::unique_ptr<Flight> StartKernel::started(OrtKernelContext* context, const ElementInfo& element,
                                             std::vector<Piece> pieces) {
  if (!on_device()) return on_thread(element, std::move(pieces));
  if (!has_met()) {
    wait_for_transfers(context);
    meet(describe(element, pieces));
  }
  return on_side_stream(context, element, pieces);
}

// The group's agreement is checked on the thread, too, in the order of transfers.
std::unique_ptr<Flight> StartKernel::on_thread(const ElementInfo& element,
                                               std::vector<Piece> pieces) {
  const auto what = is_known_ ? std::string() : describe(element, pieces);
  auto kept = reads(pieces);
  auto body = [this, what, &element, pieces = std::move(pieces)] {
    located(node_, [&] {
      const InCollective now(node_, false);
      if (!is_known_) meet(what);
      is_known_ = true;
      on_host(element, bytes_of(pieces, element), Waiting::Asleep,
              [&](Transport& transport) { run_pieces(pieces, element, transport); });
    });
  };
  return std::make_unique<FlightOnThread>(this, form_.name(), std::move(kept),
                                          transfers().start(std::move(body)));
}

std::unique_ptr<Flight> StartKernel::on_side_stream(OrtKernelContext* context,
                                                    const ElementInfo& element,
                                                    const std::vector<Piece>& pieces) {
  const InCollective now(node_, true);
  if (!ends_) ends_ = std::make_unique<Ends>();
  const auto side = side_stream().stream();
  ends_->begin.record(api_.stream(context));
  ends_->begin.hold(side);
  auto transport = std::make_unique<NcclTransport>(context, arena(), nccl(), element, side);
  run_pieces(pieces, element, *transport);
  ends_->done.record(side);
  return std::make_unique<FlightOnStream>(this, form_.name(), reads(pieces), ends_->done,
                                          std::move(transport));
}

std::vector<const void*> StartKernel::reads(const std::vector<Piece>& pieces) const {
  std::vector<const void*> all;
  if (!is_in_place())
    for (const auto& piece : pieces) all.push_back(piece.x);
  return all;
}

}  // namespace tensoropt
