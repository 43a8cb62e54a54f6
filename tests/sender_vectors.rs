//! A genuine delivery of each sender, whose signature was computed without Hookonce: with just the preset and what it
//! needs it is an event, and changed in one byte it is refused.

use bytes::Bytes;
use hookonce::decide::delivery::{Delivery, DeliveryRejection, borrow_headers};
use hookonce::decide::id::EventId;
use hookonce::decide::judge::{Verdict, judge};
use hookonce::decide::source::Source;
use hookonce::decide::time::Timestamp;
use hookonce::internals::config;
use std::path::Path;
use std::sync::Arc;

/// What a sender sent.
struct SenderVector {
    preset: &'static str,
    secret: &'static str,
    /// Names in lower case.
    headers: &'static [(&'static str, &'static str)],
    body: &'static str,
}

/// When all of them arrived.
const ARRIVED: &str = "2026-11-18T08:30:10Z";

const VECTORS: &[SenderVector] = &[
    SenderVector {
        preset: "adyen-platform",
        secret: "EE46E2D141D53F08CC6DC5102319DDB97817480CE931D2B6381BF7CCCA94BED0",
        headers: &[("hmacsignature", "DZ9zDNg5mrGNq5aeUPw3ubxM8sdzR0OLRlS/ZzXp+ow=")],
        body: r#"{"data": {"balancePlatform": "YOUR_PLATFORM", "creationDate": "2026-11-18T08:30:00+01:00", "id": "TRANSFER1", "status": "booked", "amount": {"value": 1000, "currency": "EUR"}}, "environment": "test", "timestamp": "2026-11-18T07:30:01Z", "type": "balancePlatform.transfer.updated"}"#,
    },
    SenderVector {
        preset: "airtable",
        secret: "QMV7tTwHM4uuGvjr7sWe7fCx33RSc0pm/WfcpQwlo94=",
        headers: &[(
            "x-airtable-content-mac",
            "hmac-sha256=7ef9ebd37bc92e451877d053d567e2c5834a7a9d2e24f04ec696a90d2dfabe76",
        )],
        body: r#"{"base": {"id": "app00000000000001"}, "webhook": {"id": "ach00000000000001"}, "timestamp": "2026-11-18T08:30:00.104Z"}"#,
    },
    SenderVector {
        preset: "airwallex",
        secret: "the secret of airwallex",
        headers: &[
            ("x-timestamp", "1794990605104"),
            ("x-signature", "ba7be9291fa1cd010c98fbd5f22b1b1945430deebabfcbd902f023b5fd3c93ef"),
        ],
        body: r#"{"id": "evt_1", "name": "payment_intent.succeeded", "account_id": "acct_1", "created_at": "2026-11-18T08:30:00+0000", "data": {"object": {"id": "int_1", "amount": 10.0, "currency": "EUR", "status": "SUCCEEDED"}}, "version": "2026-02-27"}"#,
    },
    SenderVector {
        preset: "box",
        secret: "the primary key of box",
        headers: &[
            ("box-delivery-id", "5f3c1e02-0000-4000-8000-0000000000ff"),
            ("box-delivery-timestamp", "2026-11-18T00:30:05-08:00"),
            ("box-signature-primary", "8IZsQWYGu5/fxnFwqjFS4Y70WevFJXJdavhwEx5QoZE="),
            ("box-signature-secondary", "Ss+5rCrq8YeD11Lb18AMSVUVYbAc4xnKFZ5rcQiqmOM="),
        ],
        body: r#"{"type": "webhook_event", "id": "5f3c1e02-0000-4000-8000-000000000001", "created_at": "2026-11-18T00:30:00-08:00", "trigger": "FILE.UPLOADED", "webhook": {"id": "1001", "type": "webhook"}, "created_by": {"id": "2001", "type": "user", "login": "ann@example.com"}, "source": {"id": "3001", "type": "file", "name": "report.pdf"}}"#,
    },
    SenderVector {
        preset: "box",
        secret: "the secondary key of box",
        headers: &[
            ("box-delivery-timestamp", "2026-11-18T00:30:05-08:00"),
            ("box-signature-primary", "Ss+5rCrq8YeD11Lb18AMSVUVYbAc4xnKFZ5rcQiqmOM="),
            ("box-signature-secondary", "2FoUzJDSsiqTFfCgpirYdZnbWBDsBJV+FlKhsYOpIVE="),
        ],
        body: r#"{"type": "webhook_event", "id": "5f3c1e02-0000-4000-8000-000000000001", "created_at": "2026-11-18T00:30:00-08:00", "trigger": "FILE.UPLOADED", "webhook": {"id": "1001", "type": "webhook"}, "created_by": {"id": "2001", "type": "user", "login": "ann@example.com"}, "source": {"id": "3001", "type": "file", "name": "report.pdf"}}"#,
    },
    SenderVector {
        preset: "calendly",
        secret: "the secret of calendly",
        headers: &[(
            "calendly-webhook-signature",
            "t=1794990605,v1=9ed7e637e819220385462547014682ad2ac92402e0d6f595d53e568fc7c0662b",
        )],
        body: r#"{"event": "invitee.created", "created_at": "2026-11-18T08:30:00.000000Z", "created_by": "https://api.calendly.com/users/AAAAAAAAAAAAAAAA", "payload": {"uri": "https://api.calendly.com/scheduled_events/BBBB/invitees/CCCC", "email": "ann@example.com", "name": "Ann", "status": "active", "rescheduled": false}}"#,
    },
    SenderVector {
        preset: "clickup",
        secret: "the secret of clickup",
        headers: &[("x-signature", "f7a989c1b4caedc03f222c0c1c762b1d313c93d81f7478690f04916617968a12")],
        body: r#"{"event": "taskStatusUpdated", "history_items": [{"id": "4001", "type": 1, "date": "1763454600104", "field": "status", "parent_id": "5001", "before": {"status": "to do"}, "after": {"status": "in progress"}}], "task_id": "task1", "webhook_id": "5f3c1e02-0000-4000-8000-000000000002"}"#,
    },
    SenderVector {
        preset: "cloudflare-stream",
        secret: "the secret of cloudflare-stream",
        headers: &[(
            "webhook-signature",
            "time=1794990605,sig1=6a8a4c604d0ffb14e2f788bd5c37aaff1895e973df565e163740e965c1d37262",
        )],
        body: r#"{"uid": "0123456789abcdef0123456789abcdef", "readyToStream": true, "status": {"state": "ready"}, "meta": {"name": "clip.mp4"}, "created": "2026-11-18T08:20:00.000000Z", "modified": "2026-11-18T08:30:00.000000Z", "duration": 10.5}"#,
    },
    SenderVector {
        preset: "coinbase",
        secret: "the secret of coinbase",
        headers: &[
            ("x-event-id", "5f3c1e02-0000-4000-8000-0000000000aa"),
            ("x-event-type", "payments.transfers.completed"),
            (
                "x-hook0-signature",
                "t=1794990605,v0=3be4a26a95143605735b98f4b6b00907f02880bfc0fc099fac9f00192406e1aa,h=x-event-id x-event-type,v1=1bc5bbf8b758da9978c39ecfc58526958a32ec3c38e0ea6da652e5f2407939fc",
            ),
        ],
        body: r#"{"eventType": "payments.transfers.completed", "data": {"id": "transfer-1", "network": "base", "amount": "1.5", "asset": "usdc"}}"#,
    },
    SenderVector {
        preset: "confluence",
        secret: "the secret of confluence",
        headers: &[
            ("x-hub-signature", "sha256=4f4955d0afc79d86791f7b6ecf31ad6e392de50eed878c1a3177238664c5216d"),
            ("x-atlassian-webhook-identifier", "5f3c1e02-0000-4000-8000-0000000000bb"),
        ],
        body: r#"{"webhookEvent": "page_updated", "timestamp": 1763454600000, "userAccountId": "account-1", "page": {"id": 101, "title": "Plan", "version": 2, "spaceKey": "DEV"}}"#,
    },
    SenderVector {
        preset: "jira",
        secret: "the secret of jira",
        headers: &[
            ("x-hub-signature", "sha256=e8d96e5a0305f3220198e2e683b1731518adcd9e752d499e2b3d364426c67a1e"),
            ("x-atlassian-webhook-identifier", "5f3c1e02-0000-4000-8000-0000000000bb"),
        ],
        body: r#"{"timestamp": 1763454600000, "webhookEvent": "jira:issue_updated", "issue_event_type_name": "issue_generic", "user": {"accountId": "account-1", "displayName": "Ann"}, "issue": {"id": "1", "key": "APP-1", "fields": {"summary": "A bug", "project": {"id": "2", "key": "APP"}, "status": {"name": "Done"}}}, "changelog": {"id": "3", "items": [{"field": "status", "fromString": "To Do", "toString": "Done"}]}}"#,
    },
    SenderVector {
        preset: "docusign",
        secret: "the secret of docusign",
        headers: &[("x-docusign-signature-1", "oMy7Az47Ov0dlbP4I6ZAOonWZ/k886nREFo3ucWmXLU=")],
        body: r#"{"event": "envelope-completed", "apiVersion": "v2.1", "uri": "/restapi/v2.1/accounts/1/envelopes/2", "retryCount": 0, "configurationId": 7, "generatedDateTime": "2026-11-18T08:30:00.0000000Z", "data": {"accountId": "1a2b3c4d-0000-4000-8000-000000000001", "userId": "1a2b3c4d-0000-4000-8000-000000000002", "envelopeId": "1a2b3c4d-0000-4000-8000-000000000003"}}"#,
    },
    SenderVector {
        preset: "figma",
        secret: "the passcode of figma",
        headers: &[],
        body: r#"{"event_type": "FILE_UPDATE", "file_key": "file1", "file_name": "Buttons", "passcode": "the passcode of figma", "timestamp": "2026-11-18T08:30:00Z", "webhook_id": "22"}"#,
    },
    SenderVector {
        preset: "intercom",
        secret: "the secret of intercom",
        headers: &[("x-hub-signature", "sha1=addeb8db0c6584361c1960771b9cbafd1c62fc2a")],
        body: r#"{"type": "notification_event", "app_id": "app1", "id": "notif_1", "topic": "conversation.user.created", "created_at": 1763454600, "delivery_attempts": 1, "data": {"type": "notification_event_data", "item": {"type": "conversation", "id": "12"}}}"#,
    },
    SenderVector {
        preset: "lemon-squeezy",
        secret: "the secret of lemon-squeezy",
        headers: &[
            ("x-signature", "a99086f824c512326494b0404452abb18d0c81c80037454a17d9380592440bf6"),
            ("x-event-name", "subscription_updated"),
        ],
        body: r#"{"meta": {"event_name": "subscription_updated", "webhook_id": "0f1e2d3c-0000-4000-8000-000000000001", "test_mode": true}, "data": {"type": "subscriptions", "id": "1", "attributes": {"status": "active", "updated_at": "2026-11-18T08:30:00.000000Z"}}}"#,
    },
    SenderVector {
        preset: "linear",
        secret: "the secret of linear",
        headers: &[
            ("linear-delivery", "5f3c1e02-0000-4000-8000-0000000000cc"),
            ("linear-event", "Issue"),
            ("linear-signature", "ce726eecb4f0cefd4a4fc494680c5663716b395f1db005c5990e4c207c393d30"),
        ],
        body: r#"{"action": "update", "type": "Issue", "createdAt": "2026-11-18T08:30:00.104Z", "data": {"id": "9b1deb4d-0000-4000-8000-000000000004", "identifier": "APP-1", "title": "A bug", "team": {"id": "9b1deb4d-0000-4000-8000-000000000001", "key": "APP"}}, "updatedFrom": {"title": "Bug"}, "organizationId": "9b1deb4d-0000-4000-8000-000000000002", "webhookTimestamp": 1794990605104, "webhookId": "9b1deb4d-0000-4000-8000-000000000003"}"#,
    },
    SenderVector {
        preset: "mollie",
        secret: "the secret of mollie",
        headers: &[("x-mollie-signature", "sha256=23bb6bf335e259e0336015566c8930f2264d46ef70ca09f6968e7086f6cf9147")],
        body: r#"{"resource": "event", "id": "event_1", "type": "payment-link.paid", "entityId": "pl_1", "createdAt": "2026-11-18T08:30:00.0Z", "_links": {"self": {"href": "https://api.mollie.com/v2/events/event_1", "type": "application/hal+json"}}}"#,
    },
    SenderVector {
        preset: "mux",
        secret: "the secret of mux",
        headers: &[(
            "mux-signature",
            "t=1794990605,v1=8135056d724e04ddf55a19b28eb19ebe699327f540fffbf466e135c34f11e856",
        )],
        body: r#"{"type": "video.asset.ready", "id": "1e6a3c0b-0000-4000-8000-000000000001", "created_at": "2026-11-18T08:30:00.000000Z", "object": {"type": "asset", "id": "asset1"}, "environment": {"name": "Production", "id": "env1"}, "data": {"status": "ready", "duration": 10.5}, "attempts": []}"#,
    },
    SenderVector {
        preset: "paddle",
        secret: "the secret of paddle",
        headers: &[(
            "paddle-signature",
            "ts=1794990605;h1=2d73ed8d74a23820dce763dd5bb78822ff5b0ce9ec99db3bb9fe0bc10e2c4dd0",
        )],
        body: r#"{"event_id": "evt_01kaaaaaaaaaaaaaaaaaaaaaaa", "event_type": "subscription.updated", "occurred_at": "2026-11-18T08:30:00.104Z", "notification_id": "ntf_01kaaaaaaaaaaaaaaaaaaaaaaa", "data": {"id": "sub_01kaaaaaaaaaaaaaaaaaaaaaaa", "status": "active", "customer_id": "ctm_01kaaaaaaaaaaaaaaaaaaaaaaa"}}"#,
    },
    SenderVector {
        preset: "paystack",
        secret: "the secret of paystack",
        headers: &[(
            "x-paystack-signature",
            "80570a13659ccd38501b341d0c25369285a02c6be1b4f73ab16bc644e848c00cd42a35bbc039139074f790b55fa6ffc232e917bfac61ea01de210a5ede7c8804",
        )],
        body: r#"{"event": "charge.success", "data": {"id": 1001, "domain": "test", "status": "success", "reference": "ref-1", "amount": 10000, "currency": "NGN", "paid_at": "2026-11-18T08:30:00.000Z"}}"#,
    },
    SenderVector {
        preset: "polar",
        secret: "polar_whs_the secret of polar",
        headers: &[
            ("webhook-id", "5f3c1e02-0000-4000-8000-0000000000dd"),
            ("webhook-timestamp", "1794990605"),
            ("webhook-signature", "v1,WoMY+Z7lpdsMb7fhKS3gFxqF9xpLjPDroy85izyxuho="),
        ],
        body: r#"{"type": "order.paid", "timestamp": "2026-11-18T08:30:00.104Z", "data": {"id": "5f3c1e02-0000-4000-8000-000000000003", "status": "paid", "total_amount": 1000, "currency": "usd"}}"#,
    },
    SenderVector {
        preset: "razorpay",
        secret: "the secret of razorpay",
        headers: &[
            ("x-razorpay-signature", "cff4f663b0123913741614a50a9b625273ceb8ef01a25d0754c5d9d72f744417"),
            ("x-razorpay-event-id", "event-1"),
        ],
        body: r#"{"entity": "event", "account_id": "acc_1", "event": "payment.captured", "contains": ["payment"], "payload": {"payment": {"entity": {"id": "pay_1", "entity": "payment", "amount": 100, "currency": "INR", "status": "captured"}}}, "created_at": 1763454600}"#,
    },
    SenderVector {
        preset: "revenuecat",
        secret: "Bearer the secret of revenuecat",
        headers: &[("authorization", "Bearer the secret of revenuecat")],
        body: r#"{"api_version": "1.0", "event": {"id": "12345678-0000-4000-8000-000000000001", "type": "RENEWAL", "app_user_id": "user-1", "product_id": "premium_monthly", "environment": "PRODUCTION", "store": "APP_STORE", "event_timestamp_ms": 1763454600104, "purchased_at_ms": 1763454600000}}"#,
    },
    SenderVector {
        preset: "shopify",
        secret: "the secret of shopify",
        headers: &[
            ("x-shopify-hmac-sha256", "69di/1467TIGYOYxNUbm70pmN//jmUU7M0Rxa3CsKv8="),
            ("x-shopify-topic", "orders/paid"),
            ("x-shopify-shop-domain", "ann.myshopify.com"),
            ("x-shopify-webhook-id", "5f3c1e02-0000-4000-8000-0000000000ee"),
        ],
        body: r#"{"id": 5001, "admin_graphql_api_id": "gid://shopify/Order/5001", "name": "Order 1001", "email": "ann@example.com", "created_at": "2026-11-18T08:29:00-05:00", "updated_at": "2026-11-18T08:30:00-05:00", "financial_status": "paid", "total_price": "10.00", "currency": "EUR"}"#,
    },
    SenderVector {
        preset: "square",
        secret: "the secret of square",
        headers: &[("x-square-hmacsha256-signature", "1bq5rCk0BWWEefUchavxoPJHae5EYOb9IeB+hXOSrao=")],
        body: r#"{"merchant_id": "MERCHANT1", "type": "payment.updated", "event_id": "5f3c1e02-0000-4000-8000-000000000004", "created_at": "2026-11-18T08:30:00.104Z", "data": {"type": "payment", "id": "PAYMENT1", "object": {"payment": {"id": "PAYMENT1", "status": "COMPLETED", "amount_money": {"amount": 100, "currency": "EUR"}}}}}"#,
    },
    SenderVector {
        preset: "telegram",
        secret: "the_secret_of_telegram",
        headers: &[("x-telegram-bot-api-secret-token", "the_secret_of_telegram")],
        body: r#"{"update_id": 700001, "message": {"message_id": 12, "date": 1763454600, "chat": {"id": 4242, "type": "private", "first_name": "Ann"}, "from": {"id": 4242, "is_bot": false, "first_name": "Ann"}, "text": "/start"}}"#,
    },
    SenderVector {
        preset: "tiktok",
        secret: "the secret of tiktok",
        headers: &[(
            "tiktok-signature",
            "t=1794990605,s=f8e1844b13e4a89ace1c62f9050dff7841d4bdefa8199bf6cbb400a6c6a0fe1a",
        )],
        body: r#"{"client_key": "client-1", "event": "video.publish.completed", "create_time": 1763454600, "user_openid": "user-1", "content": "{\"share_id\":\"share-1\"}"}"#,
    },
    SenderVector {
        preset: "typeform",
        secret: "the secret of typeform",
        headers: &[("typeform-signature", "sha256=4gFMyeqQAri37Qhf1iz0o1xbndIvjcXR/7Rz/Fn+qOQ=")],
        body: r#"{"event_id": "event1", "event_type": "form_response", "form_response": {"form_id": "form1", "token": "a3a12ec67a12927098a606107fac15", "submitted_at": "2026-11-18T08:30:00Z", "landed_at": "2026-11-18T08:29:00Z", "definition": {"id": "form1", "title": "Feedback", "fields": []}, "answers": []}}"#,
    },
    SenderVector {
        preset: "webflow",
        secret: "the secret of webflow",
        headers: &[
            ("x-webflow-timestamp", "1794990605104"),
            ("x-webflow-signature", "948f4b4cefada3cf7b4f4753fcd0bfbb1c44d0ce31d0a9f871a9d2deabc65329"),
        ],
        body: r#"{"triggerType": "form_submission", "payload": {"name": "Contact", "siteId": "site1", "data": {"email": "ann@example.com"}, "submittedAt": "2026-11-18T08:30:00.104Z", "id": "submission1", "formId": "form1"}}"#,
    },
    SenderVector {
        preset: "woocommerce",
        secret: "the secret of woocommerce",
        headers: &[
            ("x-wc-webhook-signature", "vJhPTX3YC6n9xXeA4PKpjmgcpqs2Irk5+yyqGZnY354="),
            ("x-wc-webhook-topic", "order.updated"),
            ("x-wc-webhook-delivery-id", "0123456789abcdef"),
        ],
        body: r#"{"id": 12, "parent_id": 0, "status": "processing", "currency": "EUR", "date_created_gmt": "2026-11-18T08:29:00", "date_modified_gmt": "2026-11-18T08:30:00", "total": "10.00", "customer_id": 1, "line_items": []}"#,
    },
    SenderVector {
        preset: "workos",
        secret: "the secret of workos",
        headers: &[(
            "workos-signature",
            "t=1794990605104, v1=67f322ff47f1832a57718355e33fcc46a28e387d87533a71584a2a23c4eb79a5",
        )],
        body: r#"{"id": "event_01", "event": "dsync.user.created", "created_at": "2026-11-18T08:30:00.104Z", "data": {"id": "directory_user_01", "object": "directory_user", "state": "active"}}"#,
    },
    SenderVector {
        preset: "zendesk",
        secret: "the secret of zendesk",
        headers: &[
            ("x-zendesk-webhook-signature-timestamp", "2026-11-18T08:30:05Z"),
            ("x-zendesk-webhook-signature", "FIwAuW4StBbCoR3HrId9uDNOPxT/7oV5twd4nyZGTt0="),
        ],
        body: r#"{"account_id": 1001, "id": "5f3c1e02-0000-4000-8000-000000000005", "type": "zen:event-type:ticket.status_changed", "subject": "zen:ticket:42", "time": "2026-11-18T08:30:00.104Z", "zendesk_event_version": "2022-11-06", "detail": {"id": "42", "status": "SOLVED"}, "event": {"current": "SOLVED", "previous": "OPEN"}}"#,
    },
];

/// The path of a sender that signs nothing.
const PATH: &str = "/in/5ec4e7c05ec4e7c0";

/// The source of this config, with this secret.
fn source(text: &str, secret: &'static str) -> Arc<Source> {
    let env = |name: &str| Some(if name.ends_with("_PATH") { PATH.to_owned() } else { secret.to_owned() });
    let config = config::parse(text, "hookonce.toml", Path::new("/"), &env).unwrap_or_else(|error| panic!("{error:?}"));
    config.sources[0].clone()
}

/// The source that `hookonce presets NAME` prints.
fn preset(name: &str, secret: &'static str) -> Arc<Source> {
    source(&config::presets::find(name).expect(name).example(), secret)
}

fn verdict(source: &Source, headers: &[(&str, &str)], body: &[u8], arrived: &str) -> Verdict {
    let json = ("content-type", "application/json");
    let headers: Vec<_> =
        [json].iter().chain(headers).map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    let body = Bytes::copy_from_slice(body);
    let at = Timestamp::parse(arrived).expect("a time");
    let headers = borrow_headers(&headers);
    let delivery = Delivery { path: source.path.shown(), query: "", headers: &headers, body: &body, at, wall: at };
    judge(source, &delivery, &mut || EventId([1; 16]))
}

fn check_refused(what: &str, verdict: &Verdict) {
    assert!(matches!(verdict, Verdict::Refused(DeliveryRejection::BadSignature)), "{what}: {verdict:?}");
}

/// The body with one bit of this byte changed.
fn changed(body: &str, at: usize) -> Vec<u8> {
    let mut body = body.as_bytes().to_vec();
    body[at] ^= 1;
    body
}

#[test]
fn a_genuine_delivery_of_each_sender_is_an_event() {
    for vector in VECTORS {
        let source = preset(vector.preset, vector.secret);
        let verdict = verdict(&source, vector.headers, vector.body.as_bytes(), ARRIVED);
        let Verdict::Events(events) = &verdict else { panic!("{}: {verdict:?}", vector.preset) };
        assert_eq!(events.len(), 1, "{}", vector.preset);
        let id = events[0].event.delivery_id.as_deref();
        assert_eq!(id.is_some(), source.delivery.is_some(), "{}: {id:?}", vector.preset);
    }
}

#[test]
fn a_delivery_that_was_changed_in_one_byte_is_refused() {
    for vector in VECTORS.iter().filter(|vector| preset(vector.preset, vector.secret).verify.signs_body()) {
        let source = preset(vector.preset, vector.secret);
        for at in [0, vector.body.len() / 2, vector.body.len() - 1] {
            check_refused(vector.preset, &verdict(&source, vector.headers, &changed(vector.body, at), ARRIVED));
        }
    }
}

#[test]
fn a_delivery_that_is_signed_with_another_secret_is_refused() {
    for vector in VECTORS {
        // It is also base64 and hex.
        let source = preset(vector.preset, "0123456789abcdef0123456789abcdef");
        check_refused(vector.preset, &verdict(&source, vector.headers, vector.body.as_bytes(), ARRIVED));
    }
}

#[test]
fn a_delivery_without_its_signature_or_token_is_refused() {
    for vector in VECTORS {
        let source = preset(vector.preset, vector.secret);
        let body = vector.body.replace(vector.secret, "");
        let proof = source.verify.signature_headers();
        let headers: Vec<_> =
            vector.headers.iter().copied().filter(|(name, _)| !proof.iter().any(|proof| proof == name)).collect();
        check_refused(vector.preset, &verdict(&source, &headers, body.as_bytes(), ARRIVED));
    }
}

#[test]
fn a_delivery_that_is_too_old_is_refused_where_its_time_is_signed() {
    let timed = |vector: &&SenderVector| preset(vector.preset, vector.secret).verify.tolerance().is_some();
    let mut names: Vec<_> = VECTORS.iter().filter(timed).map(|vector| vector.preset).collect();
    for vector in VECTORS.iter().filter(timed) {
        let source = preset(vector.preset, vector.secret);
        for arrived in ["2026-11-18T16:31:00Z", "2026-11-18T00:29:00Z"] {
            check_refused(vector.preset, &verdict(&source, vector.headers, vector.body.as_bytes(), arrived));
        }
    }
    names.dedup();
    let expected = [
        "airwallex",
        "box",
        "calendly",
        "cloudflare-stream",
        "coinbase",
        "linear",
        "mux",
        "paddle",
        "polar",
        "tiktok",
        "webflow",
        "workos",
        "zendesk",
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_repeat_of_linear_counts_until_its_last_retry() {
    let vector = VECTORS.iter().find(|vector| vector.preset == "linear").unwrap();
    let source = preset("linear", vector.secret);
    let later = verdict(&source, vector.headers, vector.body.as_bytes(), "2026-11-18T15:31:10Z");
    assert!(matches!(later, Verdict::Events(_)), "{later:?}");
}

// Many events come in one delivery, so there is no preset; the signature can be described.
#[test]
fn version_3_of_hubspots_signature_is_verified() {
    let text = r#"[source.hubspot]
verify = { scheme = "hmac", secret = { env = "S" }, header = "x-hubspot-signature-v3", encoding = "base64", timestamp = "header.x-hubspot-request-timestamp", timestamp_format = "milliseconds", over = "{method}{url}{body}{timestamp}" }
url    = "https://www.example.com/webhook_uri"
"#;
    let source = source(text, "yyyyyyyy-yyyy-yyyy-yyyy-yyyyyyyyyyyy");
    let headers = [
        ("x-hubspot-request-timestamp", "1614265330000"),
        ("x-hubspot-signature-v3", "tpCufWLOupRpVXpoJy1Cdw0BOVgWjilpkfjxyo2w2OQ="),
    ];
    let body = r#"{"example_field":"example_value"}"#;
    let arrived = "2021-02-25T15:02:11Z";
    let genuine = verdict(&source, &headers, body.as_bytes(), arrived);
    assert!(matches!(genuine, Verdict::Events(_)), "{genuine:?}");
    check_refused("hubspot", &verdict(&source, &headers, &changed(body, 5), arrived));
    let moved = [("x-hubspot-request-timestamp", "614265330000"), headers[1]];
    check_refused("hubspot", &verdict(&source, &moved, format!("{body}1").as_bytes(), arrived));
}
