#include "combined.hpp"

#include <span>

namespace tensoropt {
namespace {

using Pieces = std::span<const Piece>;

// The layout of the ranks' parts in the larger of x and y, of a kind that cuts or joins.
Cut parts_of(const Piece& piece, const ElementInfo& element) {
  const auto& node = piece.node;
  const bool joins = node.kind->joins;
  return cut_of(joins ? piece.shape : node.output_shape(piece.shape),
                std::size_t(joins ? node.join_dim : node.cut_dim), node.group.size(),
                element.bytes);
}

// Pieces packed in sequence: this rank's operands, or its results.
class Pack {
 public:
  Pack(Pieces pieces, const ElementInfo& element, Transport& transport)
      : pieces_(pieces), node_(pieces.front().node), kind_(*node_.kind), element_(element),
        transport_(transport), ranks_(node_.group.size()) {
    for (const auto& piece : pieces) bytes_ += own_bytes(piece);
  }

  void run() const {
    void* x = transport_.scratch(0, (kind_.cuts ? ranks_ : 1) * bytes_);
    void* y = transport_.scratch(1, (kind_.joins ? ranks_ : 1) * bytes_);
    for_chunks(kind_.cuts, [&](const Piece& piece, Chunk chunk) {
      transport_.copy(at(piece.x, chunk.offset), at(x, chunk.packed), chunk.bytes);
    });
    kind_.run_packed(node_, transport_, x, y, bytes_ / element_.bytes);
    for_chunks(kind_.joins, [&](const Piece& piece, Chunk chunk) {
      transport_.copy(at(y, chunk.packed), at(piece.y, chunk.offset), chunk.bytes);
    });
  }

 private:
  // Contiguous bytes of a tensor: their offset in it, and in the packed pieces.
  struct Chunk {
    std::size_t offset, packed, bytes;
  };

  // Bytes of a piece per rank: the smaller of x and y.
  std::size_t own_bytes(const Piece& piece) const {
    const auto bytes = count_of(piece.shape) * element_.bytes;
    return kind_.cuts ? bytes / ranks_ : bytes;
  }

  // Calls `each` with the chunks of every piece: the whole tensor, or the parts of all ranks.
  template <class Each>
  void for_chunks(bool has_parts, const Each& each) const {
    std::size_t packed = 0;
    for (const auto& piece : pieces_) {
      if (has_parts) for_parts(piece, packed, each);
      else each(piece, Chunk{0, packed, own_bytes(piece)});
      packed += own_bytes(piece);
    }
  }

  template <class Each>
  void for_parts(const Piece& piece, std::size_t packed, const Each& each) const {
    const auto cut = parts_of(piece, element_);
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      for (std::size_t row = 0; row < cut.outer; ++row)
        each(piece, Chunk{(row * ranks_ + rank) * cut.chunk_bytes,
                          rank * bytes_ + packed + row * cut.chunk_bytes, cut.chunk_bytes});
  }

  Pieces pieces_;
  const Collective& node_;
  const Kind& kind_;
  const ElementInfo& element_;
  Transport& transport_;
  std::size_t ranks_, bytes_ = 0;
};

// Bytes of the larger of x and y, which pass through a buffer.
std::size_t packed_bytes(const Piece& piece, const ElementInfo& element) {
  const auto bytes = count_of(piece.shape) * element.bytes;
  return piece.node.kind->joins ? bytes * piece.node.group.size() : bytes;
}

void run_alone(const Piece& piece, const ElementInfo& element, Transport& transport) {
  run(piece.node, element, piece.shape, piece.x, piece.y, transport);
}

void run_part(Pieces part, const ElementInfo& element, Transport& transport) {
  if (part.size() > 1) Pack(part, element, transport).run();
  else if (!part.empty()) run_alone(part.front(), element, transport);
}

// Runs groups of adjacent pieces that fit into a buffer.
void run_in_parts(Pieces pieces, const ElementInfo& element, Transport& transport) {
  const auto most = transport.most_packed();
  std::size_t first = 0, bytes = 0;
  for (std::size_t next = 0; next < pieces.size(); ++next) {
    const auto own = packed_bytes(pieces[next], element);
    if (bytes + own > most) {
      run_part(pieces.subspan(first, next - first), element, transport);
      first = next;
      bytes = 0;
    }
    bytes += own;
  }
  run_part(pieces.subspan(first), element, transport);
}

// Runs all pieces in one launch; nothing can be packed or unpacked inside a launch. A piece that
// needs packing runs afterwards.
void run_as_one_launch(Pieces pieces, const ElementInfo& element, Transport& transport) {
  const auto is_in_place = [&](const Piece& piece) {
    const auto& kind = *piece.node.kind;
    const bool has_parts = kind.cuts || kind.joins;
    return !has_parts || parts_of(piece, element).outer <= transport.most_rows();
  };
  transport.as_one([&] {
    for (const auto& piece : pieces)
      if (is_in_place(piece)) run_alone(piece, element, transport);
  });
  for (const auto& piece : pieces)
    if (!is_in_place(piece)) run_alone(piece, element, transport);
}

}  // namespace

void run_combined(const std::vector<Piece>& pieces, const ElementInfo& element,
                  Transport& transport) {
  if (pieces.front().node.group.size() == 1) {
    for (const auto& piece : pieces) run_alone(piece, element, transport);
  } else if (transport.launches()) {
    run_as_one_launch(pieces, element, transport);
  } else {
    run_in_parts(pieces, element, transport);
  }
}

}  // namespace tensoropt
