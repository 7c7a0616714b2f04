FROM python:3.12-slim-bookworm

LABEL org.opencontainers.image.title="vakforge-probe" \
      org.opencontainers.image.licenses="Apache-2.0"

ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY vakforge_probe vakforge_probe
COPY eval eval
COPY scenarios scenarios
RUN pip install '.[webrtc]'

# No account is made: a number is enough for a process that owns nothing. It writes to runs/ in /tmp,
# which anybody may write to; mount a folder there to keep the results.
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["vakforge-probe"]
CMD ["--help"]
