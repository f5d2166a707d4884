// The search of mkdocs, in the page itself: a page that was opened from the disk may
// start no worker and read no JSON. What is searched is loaded with the first use.
document.addEventListener("DOMContentLoaded", () => {
  const dialog = document.getElementById("mkdocs_search_modal");
  const input = document.getElementById("mkdocs-search-query");
  const results = document.getElementById("mkdocs-search-results");
  const root = base_url.endsWith("/") ? base_url : base_url + "/";
  let loading = null;

  function script(name) {
    return new Promise((done, failed) => {
      const element = document.createElement("script");
      element.src = root + "search/" + name;
      element.onload = done;
      element.onerror = () => failed(new Error(element.src));
      document.head.append(element);
    });
  }

  async function load() {
    await Promise.all([script("lunr.js"), script("search_index.js")]);
    const { config, docs } = window.search_index;
    lunr.tokenizer.separator = new RegExp(config.separator);
    const pages = new Map(docs.map((page) => [page.location, page]));
    const index = lunr(function () {
      this.ref("location");
      this.field("title", { boost: 5 });
      this.field("text");
      docs.forEach((page) => this.add(page));
    });
    return { index, pages };
  }

  // Words as they stand, and as the beginnings of longer ones.
  function ask(index, text) {
    return index.query((query) => {
      for (const token of lunr.tokenizer(text)) {
        query.term(token, { boost: 10 });
        query.term(token, {
          usePipeline: false,
          wildcard: lunr.Query.wildcard.TRAILING,
        });
      }
    });
  }

  function shown(page, pages) {
    const whole = pages.get(page.location.split("#")[0]);
    const article = document.createElement("article");
    const link = document.createElement("a");
    link.href = root + page.location;
    link.textContent =
      page === whole ? page.title : `${whole.title}: ${page.title}`;
    const heading = document.createElement("h3");
    heading.append(link);
    const text = document.createElement("p");
    text.textContent = page.text.slice(0, 200);
    article.append(heading, text);
    return article;
  }

  async function search() {
    loading ??= load();
    const { index, pages } = await loading;
    const text = input.value.trim();
    if (text.length < window.search_index.config.min_search_length) {
      results.replaceChildren();
      return;
    }
    const found = ask(index, text).slice(0, 50);
    if (found.length) {
      results.replaceChildren(...found.map(({ ref }) => shown(pages.get(ref), pages)));
    } else {
      results.textContent = results.dataset.noResultsText;
    }
  }

  input.addEventListener("input", search);
  dialog.addEventListener("shown.bs.modal", search);
  const asked = new URLSearchParams(window.location.search).get("q");
  if (asked) {
    input.value = asked;
    search();
  }
});
